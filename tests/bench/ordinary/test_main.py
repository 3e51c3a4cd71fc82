"""The command: what was measured is told and kept however it ends, and a recording is judged for hours."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from bench.detect.loads import LoadEndedError
from bench.detect.subject import SubjectError
from bench.ordinary import __main__ as command
from bench.ordinary.parts import Blamed, Part
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.detection import Detection
from koordlet.agent.recorder import Recorder
from koordlet.config import RecordingSettings
from tests.frames import make_frame

PREFIX = "/koord-test-1-ordinary"
PATHS = {1: PREFIX, 2: f"{PREFIX}/web", 3: f"{PREFIX}/batch", 4: "/other"}
BEGAN = 1.7e9


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command.main, [str(each) for each in arguments])


def a_part(seconds: float = 60.0, recording: str = "") -> Part:
    return Part(
        kind="live",
        seconds=seconds,
        cgroups=2,
        told=(),
        busy_cpus=0.1,
        prefix=PREFIX,
        recording=recording,
        span=(BEGAN + 30, BEGAN + 30 + seconds),
    )


@pytest.mark.parametrize(
    ("end", "words"),
    [
        pytest.param(KeyboardInterrupt(), "ended early", id="interrupted"),
        pytest.param(SubjectError("it died"), "it died", id="agent-ended"),
        pytest.param(LoadEndedError("sender ended"), "sender ended", id="load-ended"),
    ],
)
def test_a_run_that_ends_early_tells_and_keeps_what_it_measured(
    end: BaseException, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live(_minutes: float, _record: Path | None, keep: Callable[[Part], None]) -> None:
        keep(a_part(1800.0))
        keep(a_part(3600.0))
        raise end

    monkeypatch.setattr(command, "live", live)
    kept = tmp_path / "a.json"
    result = run("--json", kept)
    assert result.exit_code == 1
    assert "live: 1.00 node-hours" in result.output
    assert words in result.output
    assert "live: 2.00 node-hours in 2 part(s)" in run("sum", kept, kept).output


def test_a_file_that_holds_no_parts_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"told": []}')
    result = run("sum", tmp_path / "a.json")
    assert (result.exit_code, "a.json: no parts of bench.ordinary" in result.output) == (1, True)


def recorded(folder: Path, culprit: int, harmed: range, seconds: int = 330) -> Path:
    """The agent's recording of a service that loses 0.6 s/s to a cgroup for some seconds, and the part of the run."""
    judging = Detection(
        Judge(JudgeSettings()), Recorder(RecordingSettings(directory=str(folder / "r"), segment_seconds=100.0), {})
    )
    lost = 0
    for second in range(seconds):
        lost += 6 * 10**8 if second in harmed else 10**6
        columns = {
            "cpu.wait_neighbour_ns": [0, lost, 0, 0],
            "cpu.oncpu_ns": [0, second * 10**8, second * 10**8, second * 10**8],
        }
        judging.step(make_frame(second, PATHS, columns, {(2, culprit): lost}))
    judging.close()
    part = folder / "live.json"
    part.write_bytes(msgspec.json.encode([a_part(seconds - 31.0, str(folder / "r"))]))
    return part


def replayed(part: Path, folder: Path, *options: str) -> tuple[str, Part]:
    result = run("replay", part, "--hours", "0.3", "--block-minutes", "1", "--json", folder / "replay.json", *options)
    assert result.exit_code == 0, result.output
    (kept,) = msgspec.json.decode((folder / "replay.json").read_bytes(), type=list[Part])
    return result.output, kept


@pytest.mark.parametrize(
    ("harmed", "drawn"),
    [pytest.param(range(5, 330), 1, id="and-never-closes"), pytest.param(range(5, 40), 0, id="and-closes-in-between")],
)
def test_a_verdict_that_has_been_open_since_the_start_counts(harmed: range, drawn: int, tmp_path: Path) -> None:
    output, kept = replayed(recorded(tmp_path, 3, harmed), tmp_path)
    assert "1 verdicts in its own order" in output
    assert ("open since the recording" in output, sum(each.after_joint_seconds is None for each in kept.told)) == (
        bool(drawn),
        drawn,
    )


def test_hours_drawn_from_work_without_harm_have_no_verdict(tmp_path: Path) -> None:
    output, kept = replayed(recorded(tmp_path, 3, range(0)), tmp_path)
    assert (kept.kind, kept.told) == ("replay", ())
    assert 1080 <= kept.seconds <= 1140
    assert "0 verdicts in its own order, 0 live" in output
    assert "drawn from 0.08 h" in output


@pytest.mark.parametrize(("culprit", "blamed"), [(3, Blamed.OWN), (4, Blamed.FOREIGN)])
def test_harm_is_told_each_time_it_is_drawn_and_counted_by_what_it_blames(
    culprit: int, blamed: Blamed, tmp_path: Path
) -> None:
    part = recorded(tmp_path, culprit, range(160, 175))
    output, kept = replayed(part, tmp_path)
    assert "1 verdicts in its own order" in output
    assert {each.blamed for each in kept.told} == {blamed}
    assert 2 <= len(kept.told) <= 30
    assert all(BEGAN + 160 <= each.time <= BEGAN + 176 for each in kept.told)
    assert f"all but others of the machine: {len(kept.told) if blamed is Blamed.OWN else 0} verdicts" in output
    assert replayed(part, tmp_path)[1] == kept, "the same seed draws the same"
    assert replayed(part, tmp_path, "--seed", "7")[1].told != kept.told


def test_a_recording_that_is_too_short_is_refused(tmp_path: Path) -> None:
    result = run("replay", recorded(tmp_path, 3, range(0)), "--block-minutes", "3")
    assert (result.exit_code, "less than two blocks" in result.output) == (1, True)
