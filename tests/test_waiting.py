"""Waiting returns what was waited for, or says what it was."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import alive, pause_after, wait_for


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-c", "print('no device'); raise SystemExit(3)"], stdout=stream)
    process.wait()
    yield process, log


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, None, 7, 8])
    assert wait_for(lambda: next(values), interval_seconds=0.0) == 7


def test_the_error_names_condition_last_value_and_context() -> None:
    members: list[str] = []
    with pytest.raises(AssertionError, match=r"not within 0 s: .*lambda: members.*; last \[\]\nthe log$"):
        wait_for(lambda: members, 0.0, check=lambda: "the log")


def test_a_condition_that_comes_true_at_the_deadline_counts() -> None:
    assert wait_for(lambda: True, 0.0)


def test_nothing_is_waited_for_once_the_process_has_ended(ended: tuple[subprocess.Popen[bytes], Path]) -> None:
    with pytest.raises(AssertionError, match="ended with status 3\nno device"):
        wait_for(lambda: False, check=alive(*ended))


@pytest.mark.parametrize(
    ("cpu_seconds", "pause"),
    [pytest.param(0.001, 0.02, id="little"), pytest.param(0.1, 0.9, id="a-tenth-of-a-cpu")],
)
def test_what_looks_for_long_looks_seldom(cpu_seconds: float, pause: float) -> None:
    assert pause_after(cpu_seconds, 0.02) == pytest.approx(pause)
