"""The commit-msg hook accepts the project's subjects and names what is wrong with others."""

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parent.parent / ".githooks" / "commit-msg"


def run(directory: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = directory / "COMMIT_EDITMSG"
    file.write_text(message)
    return subprocess.run([sys.executable, HOOK, file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("enforcer: restore before exit\n", id="area"),
        pytest.param("detector/judging: close a verdict after three ticks\n\nSymptom, cause, figures.\n", id="body"),
        pytest.param("api, detector: name the column of a loss\n", id="two-areas"),
        pytest.param(".ci: need root for kernel tests\n", id="dot-and-need"),
        pytest.param("probes/bpf: pass ns, process groups and bring IRQs along\n", id="verb-in-s"),
        pytest.param("# a comment\ntests: wait in one way\n# another\n", id="comments"),
        pytest.param("koordlet: " + "x" * 90 + "\n", id="100-characters"),
        pytest.param("Merge branch 'main'\n", id="merge"),
        pytest.param('Revert "tests: wait in one way"\n', id="revert"),
        pytest.param("fixup! tests: wait in one way\n", id="fixup"),
    ],
)
def test_accepted(tmp_path: Path, message: str) -> None:
    done = run(tmp_path, message)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        pytest.param("Restore before exit\n", "begins with no area", id="no-area"),
        pytest.param("Enforcer: restore\n", "begins with no area", id="capital"),
        pytest.param("enforcer:restore\n", "begins with no area", id="no-space"),
        pytest.param("\n", "begins with no area", id="empty"),
        pytest.param("enforcer: restored before exit\n", "is no imperative", id="past"),
        pytest.param("enforcer: restoring before exit\n", "is no imperative", id="gerund"),
        pytest.param("enforcer: restores before exit\n", "is no imperative", id="third-person"),
        pytest.param("koordlet: " + "x" * 91 + "\n", "has 101 characters", id="101-characters"),
        pytest.param("enforcer: restore before exit.\n", "ends with a full stop", id="full-stop"),
        pytest.param("enforcer: restore\nbefore exit\n", "is not followed by a blank line", id="no-blank-line"),
    ],
)
def test_refused(tmp_path: Path, message: str, problem: str) -> None:
    done = run(tmp_path, message)
    assert done.returncode == 1
    assert problem in done.stderr
