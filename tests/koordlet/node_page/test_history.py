"""Spans of verdicts: opened, worst, closed; bounded in number and age."""

from api.verdicts import VerdictState
from koordlet.node_page.history import VerdictHistory
from tests.verdicts import make_verdict


def test_a_verdict_has_one_span_from_its_opening_to_its_end() -> None:
    history = VerdictHistory()
    opened = make_verdict(time=100.0, lost=0.2)
    worse = make_verdict(state=VerdictState.UPDATE, time=110.0, since=100.0, lost=0.6)
    better = make_verdict(state=VerdictState.UPDATE, time=115.0, since=100.0, lost=0.1)
    history.update([opened], [opened], 100.0)
    history.update([worse], [worse], 110.0)
    history.update([better], [better], 115.0)
    (span,) = history.spans()
    assert (span.opened, span.closed, span.worst, span.last) == (100.0, None, 0.6, better)
    history.update([make_verdict(state=VerdictState.CLOSE, time=130.0, since=100.0, lost=0.0)], [], 130.0)
    (span,) = history.spans()
    assert (span.opened, span.closed, span.worst) == (100.0, 130.0, 0.6)


def test_a_verdict_from_before_the_start_counts_from_its_own_opening() -> None:
    history = VerdictHistory()
    history.update([], [make_verdict(time=500.0, since=20.0)], 500.0)
    assert [span.opened for span in history.spans()] == [20.0]


def test_a_verdict_whose_cgroup_went_ends_and_an_unknown_close_is_nothing() -> None:
    history = VerdictHistory()
    history.update([make_verdict("/a", time=1.0)], [make_verdict("/a", time=1.0)], 1.0)
    history.update([make_verdict("/b", state=VerdictState.CLOSE, time=2.0)], [], 2.0)
    assert [(span.last.victim, span.closed) for span in history.spans()] == [("/a", 2.0)]


def test_closed_spans_are_bounded_in_number_and_age() -> None:
    history = VerdictHistory(kept_seconds=60.0, most=5)
    for number in range(20):
        verdict = make_verdict(f"/{number}", time=float(number))
        history.update([verdict], [verdict], float(number))
    history.update([], [], 20.0)
    assert [span.last.victim for span in history.spans()] == ["/15", "/16", "/17", "/18", "/19"]
    history.update([], [], 81.0)
    assert not history.spans()
