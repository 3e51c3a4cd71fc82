"""Stories: found in a recording, told in words, drawn as a picture; what is not there is said with what is."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from api.frame import CgroupInfo
from api.stacks import Stack, StackEvidence, StackKind, StackRole, StackSeries
from detector.explain.story import NotRecorded, gather_story, recorded_spans, time_span
from detector.explain.text import render_story
from detector.explain.timeline import Span, timeline
from detector.explain.timeline_png import draw
from detector.explain.times import format_time
from detector.explain.victims import listing, matching
from detector.judging.diagnosis import Reason
from detector.recording.files import RecordedSegment, segment_paths
from detector.recording.format import encode_stacks
from tests.detector.explain.stories import BATCH, LOSSES, story
from tests.detector.recording.test_replay import contended, live, run

WEB = CgroupInfo(1, "/kubepods/pod1/web", "web", workload="shop/Deployment/front")
TWIN = CgroupInfo(2, "/kubepods/pod2/web", "web", workload="shop/Deployment/front")
OTHER = CgroupInfo(3, "/system.slice/cron.service", "cron.service")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("/kubepods/pod1/web", [WEB], id="path"),
        pytest.param("web", [WEB, TWIN], id="name"),
        pytest.param("shop/Deployment/front", [WEB, TWIN], id="workload"),
        pytest.param("front", [WEB, TWIN], id="last-part-of-workload"),
        pytest.param("/kubepods/*", [WEB, TWIN], id="path-pattern"),
        pytest.param("cron*", [OTHER], id="name-pattern"),
        pytest.param("*", [WEB, TWIN, OTHER], id="everything"),
        pytest.param("batch", [], id="nobody"),
        pytest.param("", [], id="empty"),
    ],
)
def test_who_is_meant(text: str, found: list[CgroupInfo]) -> None:
    assert matching(text, [WEB, TWIN, OTHER]) == found


def test_a_long_listing_says_how_much_it_leaves_out() -> None:
    text = listing([replace(OTHER, id=number) for number in range(30)])
    assert text.splitlines()[-1].strip() == "and 10 more"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        pytest.param(2, ["Nearest is rule cpu-contention: 0.310 s/s", "1 of the last 3 ticks and 2 are"], id="held"),
        pytest.param(4, ["No verdict", "0.003 s/s lost is below the threshold of 0.050"], id="below"),
        pytest.param(6, ["rule cpu-contention is open: 0.550 s/s", "batch 80%, the kernel 15%"], id="open"),
        pytest.param(14, ["opens none for another 2.0 s (cool-down)"], id="cooling-down"),
    ],
)  # fmt: skip
def test_the_answer_and_its_reason(second: int, words: list[str]) -> None:
    answer = render_story(story(second)).split("\n\nrule ")[0]
    for each in words:
        assert each in answer, answer


def test_every_tick_has_its_row_and_the_moment_is_marked() -> None:
    text = render_story(story(6))
    rows = [line for line in text.splitlines() if line[2:10].count(":") == 2 and "s/s" not in line and "/3" in line]
    assert len(rows) == len(LOSSES)
    (marked,) = [row for row in rows if row.startswith(">")]
    assert "+6.0s" in marked
    assert marked.split()[4:] == [">", "0.050", "2/3", "OPENS", "batch", "80%,", "the", "kernel", "15%"]
    assert [row.split("/3")[1].split("  ")[1].strip() for row in rows[11:14]] == ["open", "CLOSES", "cooling down"]


def test_what_is_not_measured_says_why() -> None:
    assert "cache   not measured: cache_pressure (pmu: no hardware counters in this virtual machine)" in render_story(
        story()
    )


def test_a_cgroup_that_was_not_there_is_said() -> None:
    empty = story()
    empty.ticks = [replace(tick, diagnoses=(), verdicts=()) for tick in empty.ticks]
    assert "was not there" in render_story(empty)


def test_the_timeline_holds_causes_states_and_culprits() -> None:
    drawn = timeline(story())
    assert list(drawn.causes) == ["cpu:neighbour", "cpu:kernel", "cpu:self"], "nothing of memory; own doing last"
    assert drawn.causes["cpu:neighbour"].tolist() == pytest.approx([0.85 * lost for lost in LOSSES])
    assert drawn.leading == "cpu-contention"
    assert drawn.rules == {
        "cpu-contention": [
            Span(2, 3, Reason.NOT_HELD),
            Span(5, 6, Reason.NOT_HELD),
            Span(6, 13, Reason.OPEN),
            Span(13, 16, Reason.COOLING_DOWN),
        ]
    }
    assert list(drawn.culprits) == ["batch", "the kernel"]
    assert max(drawn.culprits["batch"]) == pytest.approx(0.8)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    quiet = story()
    quiet.ticks = quiet.ticks[:1]
    for number, each in enumerate((story(), quiet, replace(story(), names={BATCH: r"_$\frac{$ <b>" + 99 * "x"}))):
        target = tmp_path / f"{number}.png"
        draw(each, timeline(each), target)
        assert target.read_bytes().startswith(b"\x89PNG")
        assert target.stat().st_size > 10_000


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    live(tmp_path / "rec", contended([0.0] * 3 + [0.4] * 8 + [0.0] * 20), segment_seconds=6)
    return tmp_path / "rec"


def test_a_story_begins_in_the_segment_before_when_it_must(recording: Path) -> None:
    parts = recorded_spans(segment_paths(recording))
    first_ns, last_ns = time_span(parts)
    assert (last_ns - first_ns) / 1e9 == 30
    told = gather_story(parts, "web", first_ns + 7 * 10**9, 4)
    assert [round((tick.wall_ns - first_ns) / 1e9) for tick in told.ticks] == list(range(3, 12))
    assert told.victim.path == "/web"
    assert told.now.causes["cpu:neighbour"] == pytest.approx(0.4)
    assert [verdict.state for tick in told.ticks for verdict in tick.verdicts] == ["open"]
    assert told.names["/batch"] == "batch"


def test_the_one_that_lost_most_is_meant(recording: Path) -> None:
    parts = recorded_spans(segment_paths(recording))
    told = gather_story(parts, "/*", parts[0].first_ns + 7 * 10**9, 4)
    assert (told.victim.path, [info.path for info in told.others]) == ("/web", ["/batch", "/idle"])
    assert "also meant, but lost less: /batch, /idle" in render_story(told)


@pytest.mark.parametrize(
    ("victim", "at", "code", "told"),
    [
        pytest.param("nobody", "+7s", 1, "no cgroup 'nobody' around", id="who"),
        pytest.param("web", "+700s", 1, "nothing was recorded at", id="after-the-end"),
        pytest.param("web", "2001-01-01T00:00:00Z", 1, "the recording spans", id="before-the-start"),
        pytest.param("web", "whenever", 2, "'whenever' is no time; write", id="no-moment"),
    ],
)
def test_what_is_not_recorded_is_said_with_what_is(recording: Path, victim: str, at: str, code: int, told: str) -> None:
    ran = run("explain", recording, "--victim", victim, "--at", at)
    assert (ran.exit_code, told in ran.stderr, "Traceback" in ran.output) == (code, True, False), ran.output
    if victim == "nobody":
        assert ran.stderr.index("/web") < ran.stderr.index("/idle"), "the largest loss comes first"


def test_a_moment_in_a_gap_names_the_gap(tmp_path: Path) -> None:
    frames = contended([0.1] * 60)
    live(tmp_path, frames[:10])
    live(tmp_path, frames[40:])
    parts = recorded_spans(segment_paths(tmp_path))
    with pytest.raises(NotRecorded, match="with a gap from"):
        gather_story(parts, "web", parts[0].first_ns + 25 * 10**9, 5)


def test_a_recording_without_frames_is_said(tmp_path: Path) -> None:
    live(tmp_path, contended([0.1]))
    (path,) = segment_paths(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    ran = run("explain", tmp_path, "--victim", "web", "--at", "+0s")
    assert (ran.exit_code, "not a single frame" in ran.stderr) == (1, True)


def test_explain_tells_and_draws(recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = run("explain", recording, "--victim", "web", "--at", "+7s", "--png", tmp_path / "web.png")
    assert ran.exit_code == 0, ran.output
    assert "A verdict of rule cpu-contention is open: 0.400 s/s lost now; batch 100%" in ran.stdout
    assert (tmp_path / "web.png").read_bytes().startswith(b"\x89PNG")
    refused = run("explain", recording, "--victim", "web", "--at", "+7s", "--png", tmp_path / "absent" / "x.png")
    assert (refused.exit_code, "absent" in refused.stderr) == (1, True)


def test_recorded_stacks_are_told_and_drawn(recording: Path, tmp_path: Path) -> None:
    first = next(RecordedSegment(segment_paths(recording)[0]).frames())
    series = StackSeries(
        path="/batch",
        role=StackRole.CULPRIT,
        stacks=(Stack(StackKind.ON_CPU, ("xz", "main", "lzma_code"), 49, 1.0),),
        frames=98,
        unresolved_frames=0,
        unseen_seconds={},
    )
    taken = StackEvidence(
        time=first.wall_ns / 1e9 + 7, seconds=2.0, hz=49, victim="/web", rule="r", series=(series,), notes=("no names",)
    )
    missing = run("explain", recording, "--victim", "web", "--at", "+7s", "--flames", tmp_path / "none.svg")
    assert (missing.exit_code, (tmp_path / "none.svg").exists()) == (1, False)
    with segment_paths(recording)[1].open("ab") as stream:
        stream.write(encode_stacks(taken) + encode_stacks(msgspec.structs.replace(taken, victim="/other")))
    ran = run("explain", recording, "--victim", "web", "--at", "+7s", "--flames", tmp_path / "web.svg")
    assert ran.exit_code == 0
    assert "culprit /batch: 49 samples at 49 Hz in 2.0 s; 0% of the frames have no name" in ran.stdout
    assert "lzma_code < main" in ran.stdout
    assert "note: no names" in ran.stdout
    assert (tmp_path / "web.svg").read_text().count("lzma_code") == 2


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    frames = contended([0.0] * 3 + [0.4] * 8)
    evil = "/web\x1b]0;owned\x07"
    renamed = [replace(frame, cgroups=(CgroupInfo(1, evil, evil), *frame.cgroups[1:])) for frame in frames]
    live(tmp_path, renamed)
    for arguments in (("replay", tmp_path), ("explain", tmp_path, "--victim", "/web*", "--at", "+7s")):
        ran = run(*arguments)
        assert r"/web\x1b]0;owned\x07" in ran.stdout
        assert "\x1b" not in ran.output


def test_a_restart_within_the_story_is_no_loss(tmp_path: Path) -> None:
    frames = contended([0.4] * 40)
    live(tmp_path, frames[:10])
    live(tmp_path, frames[12:])
    parts = recorded_spans(segment_paths(tmp_path))
    told = gather_story(parts, "web", parts[0].first_ns + 10 * 10**9, 8)
    assert [bool(tick.causes) for tick in told.ticks] == [True] * 8 + [False] + [True] * 6


def test_times_of_day_are_understood(recording: Path) -> None:

    moment = format_time(recorded_spans(segment_paths(recording))[0].first_ns + 7 * 10**9)
    assert "A verdict" in run("explain", recording, "--victim", "web", "--at", moment).stdout
