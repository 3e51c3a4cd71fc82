"""The pane of verdicts: worst first, as wide as the screen, honest about what does not fit."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.verdicts import OWN_THREADS, Culprit, How, Severity
from koordlet.top.verdicts import MOST_LINES, evidence, pane, ranked, room_for
from tests.verdicts import make_verdict

VERDICT = make_verdict(
    "/kube/web",
    time=100.0,
    culprits=(Culprit("/batch", 0.75, How.DIRECT), Culprit("/cron", 0.1, How.CORRELATED)),
    confidence=0.85,
    since=88.0,
)


@pytest.mark.parametrize("width", [60, 80, 81, 120, 200])
@pytest.mark.parametrize("victim", [pytest.param("/a", id="short"), pytest.param("/" + "x" * 90, id="long")])
def test_lines_are_as_wide_as_the_screen(width: int, victim: str) -> None:
    drawn = pane([msgspec.structs.replace(VERDICT, victim=victim)], 100.0, str, width=width, lines=2)
    assert all(len(line) <= width for line in drawn.plain.splitlines())
    assert len(drawn.plain.splitlines()[1]) >= width - 2


def test_correlated_sharesare_marked_and_nobodies_are_named() -> None:
    own = msgspec.structs.replace(VERDICT, culprits=(Culprit(OWN_THREADS, 0.6, How.DIRECT), *VERDICT.culprits[1:]))
    line = pane([own], 100.0, str, width=120, lines=2).plain.splitlines()[1]
    assert "itself 60%, /cron 10%?" in line


def test_a_long_culprit_is_cut_and_its_share_is_not() -> None:
    long = msgspec.structs.replace(VERDICT, culprits=(Culprit("/koord-test-4711-hog", 0.75, How.DIRECT),))
    line = pane([long], 100.0, str, width=80, lines=2).plain.splitlines()[1]
    assert "-hog 75%" in line
    assert "…" in line


def test_the_worst_come_first_and_the_rest_is_counted() -> None:
    low, high = (
        msgspec.structs.replace(VERDICT, severity=severity, victim=f"/{severity}")
        for severity in (Severity.LOW, Severity.HIGH)
    )
    assert [verdict.severity for verdict in ranked([low, VERDICT, high])] == [
        Severity.HIGH,
        Severity.MEDIUM,
        Severity.LOW,
    ]
    head, line = pane([low, VERDICT, high], 100.0, str, width=80, lines=2).plain.splitlines()
    assert "+2 more" in head
    assert "/high" in line


@given(st.integers(0, 50), st.integers(1, 100))
def test_the_pane_never_takes_more_than_it_needs_nor_half_of_the_screen(count: int, height: int) -> None:
    lines = room_for([VERDICT] * count, height)
    assert lines <= min(count, MOST_LINES) + 1
    assert lines <= height / 2
    assert (lines > 0) == (count > 0 and height >= 9)


@pytest.mark.parametrize(("now", "age"), [(88.0, "0 s"), (147.0, "59 s"), (1288.0, "20 min"), (90_088.0, "1 d")])
def test_ages(now: float, age: str) -> None:
    assert pane([VERDICT], now, str, width=80, lines=2).plain.endswith(age)


def test_evidence_says_what_it_rests_on() -> None:
    text = evidence([VERDICT], 100.0, {"/kube/web": "web", "/batch": "batch-7", "/cron": "cron"}.__getitem__).plain
    for part in (
        "medium: web lost 0.40 s/s waiting for CPU: 0.30 to batch-7, 0.04 to cron (correlated)",
        "85% of it seen directly",
        "since 12 s",
        "rule cpu-contention",
        "cpu_contention.lost",
    ):
        assert part in text
    assert not evidence([], 100.0, str)
