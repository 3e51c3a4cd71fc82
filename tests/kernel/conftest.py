"""Shared by the kernel tests of probes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import NoDiskError, scratch_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A block device that may be overwritten."""
    try:
        with scratch_disk(tmp_path) as device:
            yield device
    except NoDiskError as error:
        pytest.skip(str(error))
