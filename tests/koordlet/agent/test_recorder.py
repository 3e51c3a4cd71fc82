"""The recorder writes what can be replayed, keeps to its limits, and survives a disk without room."""

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from api.frame import Frame
from api.stacks import StackEvidence
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.files import RecordedSegment, segment_paths
from detector.recording.frames import essential
from koordlet.__main__ import main
from koordlet.agent.detection import Detection
from koordlet.agent.recorder import RETRY_SECONDS, Recorder
from koordlet.config import RecordingSettings
from tests.detector.recording.recordings import assert_same
from tests.frames import make_frame

ROOT = Path(__file__).parents[3]
CGROUPS = {number: f"/pod{number}" for number in range(1, 40)}


def frame(second: float) -> Frame:
    noise = [hash((second, number)) % 2**40 for number in CGROUPS]
    return make_frame(second, CGROUPS, {"cpu.wait_neighbour_ns": noise}, {(1, 2): round(second * 1e9)})


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(RecordingSettings(directory=str(tmp_path / "rec"), segment_seconds=10), {"hostname": "node"})
    yield made
    made.close()


def recorded(directory: Path) -> list[tuple[RecordedSegment, list[Frame]]]:
    segments = [RecordedSegment(path) for path in segment_paths(directory)]
    return [(segment, list(segment.frames())) for segment in segments]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond `size`, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_segments_follow_on_and_hold_every_frame(recorder: Recorder, tmp_path: Path) -> None:
    judge = Judge(JudgeSettings(node_type="model"))
    fed = [frame(second) for second in range(25)]
    for each in fed:
        recorder.record(each, judge)
        judge.step(each)
    found = recorded(tmp_path / "rec")
    assert [(segment.header.number, len(frames)) for segment, frames in found] == [(0, 10), (1, 10), (2, 5)]
    assert len({segment.header.run for segment, _ in found}) == 1
    assert all(segment.header.settings.node_type == "model" for segment, _ in found)
    for before, after in zip(fed, [each for _, frames in found for each in frames], strict=True):
        assert_same(essential(before), after)
    assert (recorder.frames, recorder.lost_frames) == (25, 0)
    assert recorder.bytes == sum(path.stat().st_size for path in (tmp_path / "rec").iterdir())


def test_nobody_else_may_read_it(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record(frame(0), Judge(JudgeSettings()))
    (path,) = segment_paths(tmp_path / "rec")
    assert [oct(each.stat().st_mode & 0o777) for each in (path.parent, path)] == ["0o700", "0o600"]


def test_every_frame_can_be_read_as_soon_as_it_is_taken(recorder: Recorder, tmp_path: Path) -> None:
    judge = Judge(JudgeSettings())
    for second in range(3):
        recorder.record(frame(second), judge)
        assert len(recorded(tmp_path / "rec")[0][1]) == second + 1


def test_the_oldest_segments_make_room(tmp_path: Path) -> None:
    settings = RecordingSettings(directory=str(tmp_path), max_bytes=1 << 20, segment_seconds=1)
    recorder, judge = Recorder(settings, {}), Judge(JudgeSettings())
    filler = tmp_path / "00000000T000000Z-older-000000.koordrec"
    filler.write_bytes(bytes(900_000))
    (tmp_path / "notes.txt").write_bytes(bytes(2_000_000))
    for second in range(5):
        recorder.record(frame(second), judge)
    recorder.close()
    left = {path.name for path in tmp_path.iterdir()}
    assert filler.name not in left
    assert {"notes.txt"} < left
    assert len(left) == 6, "five segments and the notes"


@pytest.mark.parametrize("segment_bytes", [65_536, 1 << 30])
def test_all_segments_together_stay_within_the_limit(tmp_path: Path, segment_bytes: int) -> None:
    limit = 1 << 20
    settings = RecordingSettings(directory=str(tmp_path), max_bytes=limit, segment_bytes=segment_bytes)
    recorder, judge = Recorder(settings, {}), Judge(JudgeSettings())
    paths = {number: f"/{number}" for number in range(2000)}
    for second in range(250):
        noise = list(os.urandom(len(paths)))
        recorder.record(make_frame(second, paths, {"cpu.oncpu_ns": noise, "cpu.wait_self_ns": noise[::-1]}), judge)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
    recorder.close()
    assert (recorder.frames, recorder.lost_frames) == (250, 0)
    assert recorder.bytes > limit


def test_a_full_disk_is_counted_logged_once_and_outlived(
    recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge = Judge(JudgeSettings())
    recorder.record(frame(0), judge)
    (path,) = segment_paths(tmp_path / "rec")
    caplog.set_level(logging.INFO)
    with files_of_at_most(path.stat().st_size + 100):
        for second in range(1, 5):
            recorder.record(frame(second), judge)
    assert recorder.stopped_because
    assert recorder.lost_frames == 4
    recorder.record(frame(1 + RETRY_SECONDS), judge)
    recorder.record(frame(2 + RETRY_SECONDS), judge)
    assert recorder.stopped_because == ""
    assert len(caplog.records) == 2, caplog.text
    found = recorded(tmp_path / "rec")
    assert [(len(frames), segment.damage) for segment, frames in found] == [(1, None), (2, None)]
    assert found[0][0].header.run != found[1][0].header.run, "what follows a gap is another run"
    assert [segment.header.number for segment, _ in found] == [0, 0]


def test_a_disk_without_room_for_a_header_leaves_no_empty_file(recorder: Recorder, tmp_path: Path) -> None:
    with files_of_at_most(10):
        recorder.record(frame(0), Judge(JudgeSettings()))
    assert recorder.stopped_because
    assert list((tmp_path / "rec").iterdir()) == []


def test_what_a_killed_agent_left_of_a_header_is_cleared_away(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "20260101T000000Z-0-000000.koordrec.new").write_bytes(b"KOORD")
    (tmp_path / "rec" / "letter.new").write_bytes(b"of another program")
    recorder.record(frame(0), Judge(JudgeSettings()))
    assert sorted(path.suffix for path in (tmp_path / "rec").iterdir()) == [".koordrec", ".new"]
    assert (tmp_path / "rec" / "letter.new").read_bytes() == b"of another program"


def test_a_directory_that_cannot_be_made_stops_recording_not_judging(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(RecordingSettings(directory=str(tmp_path / "file" / "rec")), {})
    detection = Detection(Judge(JudgeSettings()), recorder)
    verdicts = []
    for second in range(4):
        lost = round(second * 3e8)
        columns = {"cpu.wait_neighbour_ns": [lost, 0]}
        verdicts += detection.step(make_frame(second, {1: "/web", 2: "/hog"}, columns, {(1, 2): lost}))
    assert [verdict.victim for verdict in verdicts] == ["/web"]
    assert (detection.failures, recorder.lost_frames) == (0, 4)
    assert "Not a directory" in recorder.stopped_because


def test_a_judge_too_large_for_the_limit_is_said(tmp_path: Path) -> None:
    class Huge(Judge):
        def checkpoint(self) -> bytes:
            return os.urandom(1 << 20)

    recorder = Recorder(RecordingSettings(directory=str(tmp_path), max_bytes=1 << 20), {})
    recorder.record(frame(0), Huge(JudgeSettings()))
    assert "raise [recording] max_bytes" in recorder.stopped_because


def test_a_large_state_does_not_start_a_segment_for_each_frame(tmp_path: Path) -> None:
    class Large(Judge):
        def checkpoint(self) -> bytes:
            return os.urandom(400_000)

    recorder, judge = (
        Recorder(RecordingSettings(directory=str(tmp_path), max_bytes=1 << 20), {}),
        Large(JudgeSettings()),
    )
    for second in range(20):
        recorder.record(frame(second), judge)
    assert len(list(tmp_path.iterdir())) == 1
    assert recorder.frames == 20


def test_a_frame_too_large_for_the_limit_is_said(tmp_path: Path) -> None:
    paths = {number: f"/{os.urandom(200).hex()}" for number in range(2000)}
    recorder = Recorder(RecordingSettings(directory=str(tmp_path), max_bytes=1 << 20), {})
    recorder.record(make_frame(1, paths, {}), Judge(JudgeSettings()))
    assert "a whole frame" in recorder.stopped_because
    assert "raise [recording] max_bytes" in recorder.stopped_because
    assert list(tmp_path.iterdir()) == []


ENDLESS = """
import sys
from detector.judging.judge import Judge, JudgeSettings
from koordlet.__main__ import main
from koordlet.config import RecordingSettings
from koordlet.agent.recorder import Recorder
from tests.frames import make_frame
recorder = Recorder(RecordingSettings(directory=sys.argv[1], segment_seconds=2), {})
judge = Judge(JudgeSettings())
for second in range(1 << 20):
    recorder.record(make_frame(second, {1: "/a", 2: "/b"}, {"cpu.oncpu_ns": [second, 7 * second]}), judge)
    sys.stdout.write(f"{second}\\n")
    sys.stdout.flush()
"""


def test_killed_at_any_moment_it_holds_every_frame_that_was_taken(tmp_path: Path) -> None:
    for attempt in range(5):
        directory = tmp_path / str(attempt)
        command = [sys.executable, "-c", ENDLESS, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            for _ in range(20 + 7 * attempt):
                assert child.stdout.readline()
            child.kill()
            taken = len(child.stdout.read().splitlines()) + 20 + 7 * attempt
        found = recorded(directory)
        assert all(segment.damage is None for segment, _ in found)
        assert sum(len(frames) for _, frames in found) in (taken, taken + 1)


def test_settings_are_refused_by_range() -> None:
    with pytest.raises(msgspec.ValidationError, match="max_bytes"):
        msgspec.convert({"max_bytes": 5}, RecordingSettings)


def test_a_recording_without_a_judge_is_asked_wrongly(tmp_path: Path) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text("[detection]\nenabled = false\n")
    check = ["run", "--check-config", "--config", str(config)]
    assert CliRunner().invoke(main, check).exit_code == 0
    refused = CliRunner().invoke(main, [*check, "--record", str(tmp_path / "rec")])
    assert (refused.exit_code, "recording needs [detection]" in refused.output) == (2, True)


def test_stacks_are_kept_between_frames_and_do_not_disturb_them(recorder: Recorder, tmp_path: Path) -> None:
    evidence = StackEvidence(time=2.0, seconds=2.0, hz=49, victim="/pod1", rule="r", series=())
    judge = Judge(JudgeSettings())
    recorder.keep_stacks(evidence)  # no segment yet
    for second in range(1, 4):
        recorder.record(essential(frame(second)), judge)
        recorder.keep_stacks(evidence)
    ((segment, frames),) = recorded(tmp_path / "rec")
    assert [each.monotonic_ns for each in frames] == [10**9, 2 * 10**9, 3 * 10**9]
    assert list(segment.stacks()) == [evidence] * 3
    assert (segment.damage, recorder.lost_stacks) == (None, 1)


def test_a_torn_end_costs_only_the_last_stacks(recorder: Recorder, tmp_path: Path) -> None:
    evidence = StackEvidence(time=2.0, seconds=2.0, hz=49, victim="/pod1", rule="r", series=())
    recorder.record(essential(frame(1)), Judge(JudgeSettings()))
    recorder.keep_stacks(evidence)
    recorder.keep_stacks(evidence)
    recorder.close()
    (path,) = segment_paths(tmp_path / "rec")
    path.write_bytes(path.read_bytes()[:-3])
    segment = RecordedSegment(path)
    assert len(list(segment.frames())) == len(list(segment.stacks())) == 1
    assert segment.damage is not None
