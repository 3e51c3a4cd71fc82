"""Shared by all tests: what every real-kernel test needs, and forced kernel tests that fail instead of skipping."""

import contextlib
import copy
import enum
import fcntl
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from api.plugin import Unsupported
from probes.probe import Kernel
from tests.cgroups import CgroupTree

pytest_plugins = ("tests.noisy",)

MAX_ID_CHARS = 60
LOCKED = Path(__file__)
"""File whose lock tests of the kernel hold: one of this tree."""

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
"""Outside of CI every run looks for new counterexamples; a gate must give the same answer twice."""


def pytest_configure() -> None:
    """Heed SIGINT as from a terminal: a shell starts what it runs in the background with SIGINT ignored.

    Programs that tests start and end by SIGINT would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restores levels and handlers: commands that run in the tests' process set them, as a process of its own may."""
    root = logging.getLogger()
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    levels, handlers = [each.level for each in loggers], list(root.handlers)
    yield
    for each, level in zip(loggers, levels, strict=True):
        if each.level != level:
            each.setLevel(level)
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def running_kernel() -> Kernel:
    """The running kernel, its types read once. Skips unless root; where kernel tests are forced, that is a failure."""
    if os.geteuid() != 0:
        if os.environ.get("FORCE_KERNEL_TESTS") == "1":
            pytest.fail("real-kernel tests are forced but this is not root")
        pytest.skip("needs root")
    kernel = Kernel()
    with contextlib.suppress(Unsupported):
        _ = kernel.btf
    return kernel


@pytest.fixture
def kernel(running_kernel: Kernel) -> Kernel:
    """The running kernel, with no refusal of another test's probe on record."""
    return _without_refusals(running_kernel)


@pytest.fixture(scope="module")
def module_kernel(running_kernel: Kernel) -> Kernel:
    """The same for a probe that the tests of a module share, of which each looks at what grew, in cgroups of its own.

    The verifier takes up to ten seconds for the programs of one probe on an emulated CPU.
    """
    return _without_refusals(running_kernel)


def _without_refusals(kernel: Kernel) -> Kernel:
    fresh = copy.copy(kernel)
    fresh.refusals = {}
    return fresh


@pytest.fixture
def tree(kernel: Kernel) -> CgroupTree:
    """The mounted cgroup hierarchies."""
    return CgroupTree.detect()


def pytest_make_parametrize_id(val: object, argname: str) -> None:
    """Refuse values that pytest would name by position (`grown3`); they take `pytest.param(..., id=)` or `ids=`."""
    if not is_readable(val):
        raise TypeError(f"parametrize: a value of {argname} has no readable id, write pytest.param(..., id=): {val!r}")


def is_readable(value: object) -> bool:
    """Return whether a parameter's own text names the case: a number, an enum, a class, a short line of text."""
    if isinstance(value, str):
        return len(value) <= MAX_ID_CHARS and "\n" not in value
    return isinstance(value, (int, float, type(None), enum.Enum)) or isinstance(getattr(value, "__name__", None), str)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run tests of the kernel one at a time, also where several processes divide the tests among them.

    Those marked `beside(together=True)` share a turn. Around fixtures of modules and the clock of the time-out: a test
    that waits for its turn has not begun.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ or item.get_closest_marker("kernel") is None:
        return (yield)
    beside = item.get_closest_marker("beside")
    together = beside is not None and beside.kwargs.get("together", False)
    with LOCKED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if together else fcntl.LOCK_EX)
        return (yield)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Under FORCE_KERNEL_TESTS=1 a kernel test that skips for want of root fails; other skips keep their reason."""
    outcome = yield
    report = outcome.get_result()
    forced = os.environ.get("FORCE_KERNEL_TESTS") == "1"
    if forced and report.skipped and item.get_closest_marker("kernel") and "needs root" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped although kernel tests are forced"
