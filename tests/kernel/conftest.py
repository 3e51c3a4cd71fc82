"""What every real-kernel test needs: root, the cgroup tree, and what this kernel offers."""

from __future__ import annotations

import os

import pytest

from probes.probe import Kernel
from tests.cgroups import CgroupTree


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The running kernel. Skips unless root; where kernel tests are forced, that skip is a failure."""
    if os.geteuid() != 0:
        if os.environ.get("FORCE_KERNEL_TESTS") == "1":
            pytest.fail("real-kernel tests are forced but this is not root")
        pytest.skip("needs root")
    return Kernel()


@pytest.fixture
def tree(kernel: Kernel) -> CgroupTree:
    return CgroupTree.detect()
