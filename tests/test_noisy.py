"""Further attempts need a reason, and the report lists both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.noisy import KERNEL_REASON, noisy

ROOT = Path(__file__).parent.parent
SECOND_ATTEMPT_PASSES = """
import pytest
from tests.noisy import noisy

attempts = []

{mark}
def test_race():
    attempts.append(1)
    assert len(attempts) == 2
"""


def run(directory: Path, mark: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = directory / "test_race.py"
    file.write_text(SECOND_ATTEMPT_PASSES.format(mark=mark))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.noisy", "-p", "no:cacheprovider", *options, str(file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_a_noisy_test_is_tried_again_and_listed_with_its_reason(tmp_path: Path) -> None:
    done = run(tmp_path, '@noisy("a shared CPU")')
    assert done.returncode == 0, done.stdout
    assert "test_race.py::test_race: 2 attempts: a shared CPU" in done.stdout


def test_a_kernel_test_is_noisy(tmp_path: Path) -> None:
    done = run(tmp_path, "@pytest.mark.kernel")
    assert done.returncode == 0, done.stdout
    assert f"test_race.py::test_race: 2 attempts: {KERNEL_REASON}" in done.stdout


def test_any_other_test_has_one_attempt(tmp_path: Path) -> None:
    assert run(tmp_path, "").returncode == 1


def test_no_further_attempt_without_the_plugin_that_makes_them(tmp_path: Path) -> None:
    done = run(tmp_path, '@noisy("a shared CPU")', "-p", "no:rerunfailures")
    assert done.returncode == 1
    assert "1 failed" in done.stdout


def test_a_mark_without_reason_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "@pytest.mark.flaky(reruns=3)")
    assert done.returncode != 0
    assert "test_race: marked flaky; use tests.noisy.noisy(reason)" in done.stdout + done.stderr


def test_reruns_of_the_command_line_are_listed_too(tmp_path: Path) -> None:
    done = run(tmp_path, "", "--reruns=1")
    assert done.returncode == 0
    assert "test_race: 2 attempts: --reruns" in done.stdout


@pytest.mark.parametrize("reason", ["", " "], ids=["empty", "blank"])
def test_the_reason_is_no_formality(reason: str) -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        noisy(reason)
