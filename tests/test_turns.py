"""Tests of the kernel take turns among processes, and a test's time-out begins with its turn."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_for

ROOT = Path(__file__).parents[1]
PLUGIN = """
from pathlib import Path
from tests import conftest
from tests.conftest import pytest_runtest_protocol

conftest.LOCKED = Path("lock").absolute()

def pytest_collection_finish(session):
    Path("collected").touch()
"""
MODULE = """
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def made():
    Path("made").touch()

@pytest.mark.kernel
{mark}
@pytest.mark.timeout(1)
def test_it(made):
    Path("run").touch()
"""


def started(directory: Path, mark: str) -> subprocess.Popen[str]:
    """One process of several, with one test that has this mark too."""
    (directory / "conftest.py").write_text(PLUGIN)
    (directory / "test_inner.py").write_text(MODULE.format(mark=mark))
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n  kernel\n  beside\n")
    environment = {**os.environ, "PYTEST_XDIST_WORKER": "gw0", "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    return subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_that_go_together_share_a_turn(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        inner = started(tmp_path, "@pytest.mark.beside(together=True)")
        told, _ = inner.communicate(timeout=60)
    assert inner.returncode == 0, told
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mark", "other"),
    [
        pytest.param("", fcntl.LOCK_EX, id="alone"),
        pytest.param("@pytest.mark.beside", fcntl.LOCK_SH, id="beside-one-of-those-that-go-together"),
        pytest.param("@pytest.mark.beside(together=True)", fcntl.LOCK_EX, id="together-beside-another"),
    ],
)
def test_a_test_that_waits_for_its_turn_has_not_begun(tmp_path: Path, mark: str, other: int) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, other)
        inner = started(tmp_path, mark)
        wait_for(lambda: (tmp_path / "collected").exists() or inner.poll() is not None)
        time.sleep(1.5)  # longer than the time-out of the test
        assert inner.poll() is None, inner.communicate()[0]
        assert not (tmp_path / "made").exists()
    told, _ = inner.communicate(timeout=60)
    assert inner.returncode == 0, told
    assert (tmp_path / "run").exists()
