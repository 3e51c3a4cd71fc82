"""Parts of runs: joined where they are of one kind, and never a replay with what was live."""

import pytest

from api.verdicts import KERNEL, Culprit, How, Verdict, VerdictState
from bench.ordinary.parts import Blamed, Part, Told, open_at_the_end, rate, summary, told_of
from tests.verdicts import make_verdict

PREFIX = "/koord-test-1-ordinary"


def told(blame: Blamed, time: float = 0.0, after: float | None = None) -> Told:
    return Told(time, "cpu-contention", blame, "words", after)


def part(
    *verdicts: Told, kind: str = "live", hours: float = 1.0, busy: float = 0.1, recording: str = "", began: float = 0.0
) -> Part:
    return Part(
        kind=kind,
        seconds=hours * 3600,
        cgroups=54,
        told=verdicts,
        busy_cpus=busy,
        prefix=PREFIX,
        recording=recording,
        span=(began, began + 1800.0),
        recorded_seconds=1800.0 if kind == "replay" else 0.0,
    )


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        (f"{PREFIX}/cron-1", Blamed.OWN),
        ("/koord-test-12-ordinary/cron-1", Blamed.FOREIGN),
        ("/", Blamed.FOREIGN),
        (KERNEL, Blamed.NONE),
        ("", Blamed.NONE),
    ],
)
def test_what_a_verdict_blames(culprit: str, expected: Blamed) -> None:
    culprits = (Culprit(culprit, 0.9, How.DIRECT),) if culprit else ()
    assert told_of(make_verdict(culprits=culprits), PREFIX, 5.0).blamed is expected


def test_live_parts_add_up() -> None:
    text = summary([part(told(Blamed.OWN), busy=0.1), part(told(Blamed.FOREIGN), told(Blamed.NONE), hours=3, busy=0.5)])
    assert "live: 4.00 node-hours in 2 part(s), 54 cgroups" in text
    # 95 % bounds of two and three events (6.296, 7.754), by 6 parts of a day.
    assert "all but others of the machine: 2 verdicts in 4.00 node-hours: 12.00 a node-day, at most 37.77 " in text
    assert "all: 3 verdicts in 4.00 node-hours: 18.00 a node-day, at most 46.52 (95 %)" in text
    assert "CPUs busy with others' work: 0.40, worst part 0.50" in text


def test_a_replay_is_told_apart_and_says_how_much_of_it_is_one_minute_drawn_again() -> None:
    drawn = ((60.0, 3.0), (61.0, 200.0), (119.0, 15.0), (120.0, 40.0))
    again = [told(Blamed.OWN, time, after) for time, after in drawn]
    live, replay, bounds = summary([part(*again, kind="replay", hours=72), part()]).split("\n\n")
    assert live.startswith("live: 1.00 node-hours")
    assert "0 verdicts in 1.00 node-hours: 0.00 a node-day, at most 71.90 (95 %)" in live
    assert "replay: 72.00 node-hours in 1 part(s), 54 cgroups, drawn from 0.50 h" in replay
    assert "4   from 2 recorded minutes, 2 within 15 s of a joint" in replay
    # 95 % bound of four events (9.154), by 3 days.
    expected = "4 verdicts in 72.00 node-hours: 1.33 a node-day, at most 3.05 (95 %, given the recordings)"
    assert f"all but others of the machine: {expected}" in replay
    assert f"all: {expected}" in replay
    assert "given" not in live
    assert bounds.startswith(
        "A live part's bound is of the rate about such work; a replay's holds given its recordings"
    )


def test_a_recording_that_two_replays_were_drawn_from_is_as_long_as_it_is() -> None:
    twice = [part(kind="replay", hours=hours, recording="a") for hours in (24, 48)]
    assert "72.00 node-hours in 2 part(s), 54 cgroups, drawn from 0.50 h" in summary(twice)
    others = [part(kind="replay", recording="b"), part(kind="replay", recording="a", began=1800.0)]
    assert "drawn from 1.50 h" in summary([*twice, *others])


def test_live_parts_alone_need_no_word_about_replays() -> None:
    assert "replay" not in summary([part(), part()])


def test_three_days_without_a_verdict_bound_the_rate_at_one() -> None:
    assert rate(0, 3 * 86_400.0).endswith("0.00 a node-day, at most 1.00 (95 %)")


def line(state: VerdictState, name: str = "web", rule: str = "cpu-contention") -> Verdict:
    return make_verdict(victim=f"{PREFIX}/{name}", state=state, rule=rule)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([line(VerdictState.OPEN), line(VerdictState.UPDATE)], 1, id="open"),
        pytest.param([line(VerdictState.OPEN), line(VerdictState.CLOSE)], 0, id="closed"),
        pytest.param([line(VerdictState.CLOSE), line(VerdictState.OPEN)], 1, id="closed-and-open-again"),
        pytest.param([line(VerdictState.OPEN), line(VerdictState.CLOSE, rule="irq")], 1, id="another-rule-closed"),
        pytest.param([line(VerdictState.OPEN), line(VerdictState.OPEN, "cron")], 2, id="two-victims"),
        pytest.param([make_verdict(victim="/other", state=VerdictState.OPEN)], 0, id="of-others"),
    ],
)
def test_verdicts_that_are_left_open(lines: list[Verdict], expected: int) -> None:
    assert len(open_at_the_end(lines, PREFIX)) == expected
