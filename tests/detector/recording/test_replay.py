"""A replay says what was said live, byte by byte, from any segment on; and what other rules would have said."""

import errno
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.frame import CGROUP, Frame, Table
from api.metrics import METRICS, MetricKind
from api.verdicts import VerdictState, from_json, to_json
from detector.__main__ import main
from detector.explain.story import NotRecorded, gather_story, recorded_spans
from detector.explain.text import render_story
from detector.explain.timeline import timeline
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.files import segment_paths
from detector.recording.format import HEADER, MAGIC, RecordingRefused, pack_block
from detector.recording.frames import FrameEncoder, essential
from detector.recording.replay import replay
from detector.rules import Rule
from koordlet.agent.detection import Detection
from koordlet.agent.recorder import Recorder
from koordlet.config import RecordingSettings
from tests.detector.recording.recordings import header, mangle, runs, write_segment
from tests.frames import make_frame

CGROUPS = {1: "/web", 2: "/batch", 3: "/idle"}
LOSSES = [0.0] * 3 + [0.4] * 8 + [0.02] * 9 + [0.9] * 12 + [0.0] * 20 + [0.3] * 5


def contended(losses: list[float]) -> list[Frame]:
    """Each tick /web loses so many seconds to /batch."""
    made, lost = [], 0
    for second, loss in enumerate(losses):
        lost += round(loss * 1e9)
        columns = {"cpu.wait_neighbour_ns": [lost, 0, 0], "cpu.oncpu_ns": [second * 10**8, lost, 0]}
        made.append(make_frame(second, CGROUPS, columns, {(1, 2): lost}))
    return made


def live(directory: Path, frames: list[Frame], judge_settings: JudgeSettings | None = None, **limits: float) -> bytes:
    """The lines that the agent's judge tells while it records."""
    recording = msgspec.convert({"directory": str(directory), **limits}, RecordingSettings)
    judging = Detection(Judge(judge_settings or JudgeSettings()), Recorder(recording, {"koord_version": "1"}))
    told = b"".join(to_json(verdict) + b"\n" for frame in frames for verdict in judging.step(frame))
    judging.close()
    assert judging.failures == 0
    return told


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_replay_says_what_was_said(tmp_path: Path) -> None:
    told = live(tmp_path, contended(LOSSES))
    again = run("replay", tmp_path, "--json")
    assert (again.exit_code, again.stdout_bytes) == (0, told)
    assert told.count(b"\n") >= 4


@pytest.mark.parametrize("seconds", [1, 5, 7])
def test_segments_go_on_where_the_judge_stood(tmp_path: Path, seconds: int) -> None:
    told = live(tmp_path, contended(LOSSES), segment_seconds=seconds)
    assert len(segment_paths(tmp_path)) == -(-len(LOSSES) // seconds)
    assert run("replay", tmp_path, "--json").stdout_bytes == told


def test_any_segment_replays_alone(tmp_path: Path) -> None:
    told = live(tmp_path, contended(LOSSES), segment_seconds=9)
    alone = b"".join(run("replay", path, "--json").stdout_bytes for path in segment_paths(tmp_path))
    assert alone == told


def test_rules_that_change_meanwhile_are_replayed_as_they_changed(tmp_path: Path) -> None:
    judging = Detection(Judge(JudgeSettings()), Recorder(RecordingSettings(directory=str(tmp_path)), {}))
    told = []
    for number, frame in enumerate(contended(LOSSES)):
        if number in (8, 30):
            judging.judge.replace_rules((Rule(name="other", any_of=("cpu_contention",), threshold=0.01 * number),))
        told += judging.step(frame)
    judging.close()
    assert {verdict.rule for verdict in told} == {"cpu-contention", "other"}
    assert len(segment_paths(tmp_path)) == 3
    again = run("replay", tmp_path, "--json")
    assert again.stdout_bytes == b"".join(to_json(verdict) + b"\n" for verdict in told)


def with_everything(number: int, rng: np.random.Generator) -> Frame:
    """Every dense column there is, growing at random, with cgroups that come and go."""
    ids = np.sort(rng.choice(12, size=rng.integers(6, 12), replace=False).astype(np.uint64) + np.uint64(1))
    columns = {}
    for metric in METRICS:
        if metric.table != CGROUP:
            continue
        if metric.kind is MetricKind.HISTOGRAM:
            columns[metric.column] = rng.integers(0, 9, (len(ids), 40)).astype(np.uint64)
        else:
            step = rng.lognormal(18, 2, len(ids)) * (rng.random(len(ids)) < 0.7)
            columns[metric.column] = (step * (1 if metric.kind is MetricKind.GAUGE else number + 1)).astype(np.uint64)
    frame = make_frame(number, {int(each): f"/{each}" for each in ids}, {}, None)
    pairs = np.array([(a, b) for a in ids for b in ids], dtype=np.uint64)
    tables = {CGROUP: Table({"cgroup": ids}, columns)}
    for name in ("cpu.blame", "memory.blame", "blockio.blame", "smt.blame"):
        amounts = (rng.lognormal(17, 2, len(pairs)) * (number + 1)).astype(np.uint64)
        keys = {"cgroup": pairs[:, 0], "culprit": pairs[:, 1]}
        tables[name] = Table(keys, {f"{name}_ns": amounts})
    return Frame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, tables, {"x": 1}, {"pmu": "absent"})


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_the_judge_reads_nothing_that_is_not_recorded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole, pared = Judge(JudgeSettings()), Judge(JudgeSettings())
    told = 0
    for number in range(12):
        frame = with_everything(number, rng)
        verdicts = whole.step(frame)
        assert [*map(to_json, pared.step(essential(frame)))] == [*map(to_json, verdicts)]
        told += len(verdicts)
    assert told


def test_other_rules_say_what_they_would_have_said(tmp_path: Path) -> None:
    live(tmp_path, contended(LOSSES), segment_seconds=4)
    rules = tmp_path / "rules.toml"
    rules.write_text('[rules.late]\nany_of = ["cpu_contention"]\nticks = 10\nof_ticks = 12\n')
    again = run("replay", tmp_path, "--json", "--rules", rules)
    verdicts = [from_json(line) for line in again.stdout_bytes.splitlines()]
    assert [(each.rule, each.state) for each in verdicts if each.state is VerdictState.OPEN] == [
        ("late", VerdictState.OPEN)
    ]


def test_a_gap_between_runs_is_said_and_not_judged_across(tmp_path: Path) -> None:
    frames = contended(LOSSES)
    told = live(tmp_path, frames[:10]) + live(tmp_path, frames[14:])
    again = run("replay", tmp_path, "--json")
    assert again.stdout_bytes == told
    assert "frames between them are missing" in again.stderr


def test_a_torn_tail_is_said_and_everything_before_it_replayed(tmp_path: Path) -> None:
    told = live(tmp_path, contended(LOSSES))
    (path,) = segment_paths(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    again = run("replay", path, "--json")
    assert again.exit_code == 0
    assert told.startswith(again.stdout_bytes)
    assert "torn" in again.stderr
    assert f"{path}: at byte " in again.stderr


def test_a_file_without_a_header_among_others_is_left_out_and_said(tmp_path: Path) -> None:
    told = live(tmp_path, contended(LOSSES))
    (tmp_path / "99990101T000000Z-0-000000.koordrec").write_bytes(b"")
    again = run("replay", tmp_path, "--json")
    assert (again.exit_code, again.stdout_bytes) == (0, told)
    assert "not a recording" in again.stderr
    assert "left out" in again.stderr
    assert "A verdict" in run("explain", tmp_path, "--victim", "web", "--at", "+7s").stdout


def test_sentences_name_people_not_paths(tmp_path: Path) -> None:
    live(tmp_path, contended(LOSSES[:8]))
    again = run("replay", tmp_path)
    assert "web lost 0.40 s/s waiting for CPU: 0.40 to batch" in again.stdout


@pytest.mark.parametrize(
    ("head", "told"),
    [
        pytest.param(header(checkpoint=b"nonsense"), "cannot go on from its state", id="checkpoint"),
        pytest.param(
            header(settings=JudgeSettings(rules=(Rule(name="r", any_of=("telepathy",)),))),
            "needs telepathy, which is not installed here",
            id="unknown-symptom",
        ),
    ],
)
def test_a_state_that_makes_no_judge_is_refused(tmp_path: Path, head: object, told: str) -> None:
    path = tmp_path / "s.koordrec"
    write_segment(path, [], head)  # type: ignore[arg-type]
    with pytest.raises(RecordingRefused, match=told):
        list(replay([path], print))
    ran = run("replay", path)
    assert (ran.exit_code, "Traceback" in ran.output) == (1, False)
    assert f"{path}: at byte 8" in ran.stderr


FORGED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FORGED
@given(st.data())
def test_forged_headers_are_refused_or_replayed(tmp_path: Path, data: st.DataObject) -> None:
    judge = Judge(JudgeSettings())
    frames = contended(LOSSES[:6])
    for frame in frames[:3]:
        judge.step(essential(frame))
    honest = msgspec.msgpack.decode(msgspec.msgpack.encode(header(checkpoint=judge.checkpoint())))
    forged = msgspec.msgpack.encode(mangle(honest, data) if data.draw(st.booleans()) else deep_mangle(honest, data))
    path = tmp_path / "s.koordrec"
    encoder = FrameEncoder()
    path.write_bytes(MAGIC + pack_block(HEADER, forged) + b"".join(map(encoder.encode, frames[3:])))
    try:
        steps = list(replay([path], lambda _text: None))
    except RecordingRefused as error:
        assert error.offset == len(MAGIC)
    else:
        assert len(steps) == 3


def deep_mangle(honest: dict[str, object], data: st.DataObject) -> dict[str, object]:
    """A header whose judge's state is changed somewhere inside."""
    state = msgspec.msgpack.decode(honest["checkpoint"])  # type: ignore[arg-type]
    return honest | {"checkpoint": msgspec.msgpack.encode(mangle(state, data))}


@FORGED
@given(runs(), st.data())
def test_any_frames_can_be_replayed_and_explained(tmp_path: Path, made: list[Frame], data: st.DataObject) -> None:
    path = tmp_path / "s.koordrec"
    write_segment(path, made, header(checkpoint=Judge(JudgeSettings()).checkpoint()))
    assert len(list(replay([path], lambda _text: None))) == len(made)
    try:
        parts = recorded_spans([path])
        at_ns = data.draw(st.sampled_from([frame.wall_ns for frame in made]))
        story = gather_story(parts, "*", at_ns, 30)
    except NotRecorded as error:
        assert str(error)
        return
    assert story.victim.path in render_story(story)
    assert len(timeline(story).seconds) == len(story.ticks)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PAR1", id="parquet"),
        pytest.param(b"KOORDREC" + bytes(90), id="torn-header"),
    ],
)
def test_no_recording_no_traceback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.koordrec"
    path.write_bytes(content)
    ran = run("replay", path)
    assert (ran.exit_code, ran.stdout, "Traceback" in ran.output) == (1, "", False)
    assert "at byte" in ran.stderr


def test_evaluate_scores_recordings_by_labels(tmp_path: Path) -> None:
    live(tmp_path / "day", contended(LOSSES))
    labels = tmp_path / "labels.toml"
    label = '[[label]]\nvictim = "/web"\nresource = "cpu"\nculprit = "/batch"\nfrom = "+{}s"\nto = "+{}s"\n'
    labels.write_text("".join(label.format(*span) for span in ((3, 11), (20, 32), (52, 57))))
    ran = run("evaluate", tmp_path / "day", "--labels", labels, "--json")
    assert ran.exit_code == 0, ran.output
    (found,) = json.loads(ran.stdout)
    assert (found["recall"], found["precision"], found["culprit_top1"]) == (1.0, 1.0, 1.0)
    assert 0 < found["worst_seconds_to_detect"] < 6
    table = run("evaluate", tmp_path / "day", tmp_path / "day", "--labels", labels).stdout
    assert "total" in table
    assert "6 of 6 labels" in table


def test_labels_of_no_recording_are_said(tmp_path: Path) -> None:
    live(tmp_path / "day", contended(LOSSES))
    labels = tmp_path / "labels.json"
    labels.write_text('{"label": [{"victim": "/web", "resource": "cpu", "from": 5, "to": 6}]}')
    ran = run("evaluate", tmp_path / "day", "--labels", labels)
    assert (ran.exit_code, "the label of /web from 5.0 is in none of the recordings" in ran.stderr) == (0, True)


def test_only_the_paths_asked_for_are_scored(tmp_path: Path) -> None:
    live(tmp_path / "day", contended(LOSSES))
    labels = tmp_path / "labels.json"
    labels.write_text('{"label": []}')
    asked = ("evaluate", tmp_path / "day", "--labels", labels, "--json", "--only")
    told = {pattern: json.loads(run(*asked, pattern).stdout)[0]["episodes"] for pattern in ("/web*", "/other")}
    assert told["/web*"] > 0
    assert told["/other"] == 0


def test_a_recording_for_root_alone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(tmp_path, contended(LOSSES[:3]))

    def refuse(path: Path, *_mode: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    ran = run("replay", tmp_path)
    assert (ran.exit_code, "for root alone" in ran.stderr, "Traceback" in ran.output) == (1, True, False)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param("label = 1", "label", id="label-is-no-table"),
        pytest.param('[[label]]\nvictim="/w"\nresource="cpu"\nfrom="soon"\nto="+1s"', "soon", id="no-time"),
    ],
)
def test_labels_that_cannot_be_used_are_asked_wrongly(tmp_path: Path, content: str, told: str) -> None:
    live(tmp_path / "day", contended(LOSSES[:4]))
    labels = tmp_path / "labels.toml"
    labels.write_text(content)
    ran = run("evaluate", tmp_path / "day", "--labels", labels)
    assert (ran.exit_code, told in ran.stderr) == (2, True)
