"""Queues between the tick and the clients: nothing waits, nothing is lost silently, what stands is right again."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from api.verdicts import Verdict, VerdictState
from koordlet.serving.hub import Subscription, Told, VerdictFilter, VerdictHub
from tests.verdicts import make_verdict

EVERYTHING = VerdictFilter()


def drain(subscription: Subscription) -> list[Told]:
    """What waits, or nothing."""
    return subscription.take(0.0) or []


def test_what_stands_comes_first_then_a_mark_then_changes() -> None:
    hub = VerdictHub(8)
    one, other = make_verdict("/a"), make_verdict("/b")
    hub.publish([one], (one,))
    subscription = hub.subscribe(EVERYTHING)
    assert drain(subscription) == [Told(one, 0), Told(None, 0)]
    hub.publish([other], (one, other))
    assert drain(subscription) == [Told(other, 0)]
    assert drain(subscription) == []


def test_a_change_before_the_snapshot_is_read_is_told_once() -> None:
    hub = VerdictHub(8)
    subscription = hub.subscribe(EVERYTHING)
    verdict = make_verdict()
    hub.publish([verdict], (verdict,))
    assert drain(subscription) == [Told(verdict, 0), Told(None, 0)]


def test_filters_hold_for_the_snapshot_and_for_changes() -> None:
    hub = VerdictHub(8)
    standing = tuple(make_verdict(path, resource=kind) for path in ("/a/1", "/b/1") for kind in ("cpu", "memory"))
    hub.publish(standing, standing)
    subscription = hub.subscribe(VerdictFilter("/a/*", "cpu"))
    assert [told.verdict for told in drain(subscription)] == [standing[0], None]
    hub.publish(standing, standing)
    assert [told.verdict for told in drain(subscription)] == [standing[0]]
    assert hub.standing(VerdictFilter(resource="memory")) == [standing[1], standing[3]]


def test_who_does_not_read_loses_messages_hears_how_many_and_gets_a_snapshot() -> None:
    hub = VerdictHub(3)
    slow, quick = hub.subscribe(EVERYTHING), hub.subscribe(EVERYTHING)
    drain(slow), drain(quick)
    for number in range(6):
        verdict = make_verdict(f"/{number}")
        hub.publish([verdict], (verdict,))
        assert drain(quick) == [Told(verdict, 0)]
    last = make_verdict("/5")
    assert drain(slow) == [Told(last, 6), Told(None, 6)]
    assert hub.dropped == 6
    slow.close()
    assert hub.dropped == 6
    assert hub.clients == 1


def test_closing_wakes_who_waits() -> None:
    hub = VerdictHub(3)
    subscription = hub.subscribe(EVERYTHING)
    drain(subscription)
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(subscription.take(30.0)))
    thread.start()
    subscription.close()
    thread.join(10.0)
    assert ended == [None]
    other = hub.subscribe(EVERYTHING)
    hub.close()
    assert other.take(30.0) is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=40),
    st.integers(min_value=1, max_value=4),
)
def test_a_client_that_follows_the_rules_always_knows_what_stands(
    steps: list[tuple[str, bool, bool]], queue_size: int
) -> None:
    hub = VerdictHub(queue_size)
    subscription = hub.subscribe(EVERYTHING)
    standing: dict[str, Verdict] = {}
    known: dict[str, Verdict] = {}
    dropped = 0
    for victim, closes, reads in [*steps, ("a", True, True)]:
        verdict = make_verdict(victim, state=VerdictState.CLOSE if closes else VerdictState.OPEN)
        standing.pop(victim, None)
        if not closes:
            standing[victim] = verdict
        hub.publish([verdict], tuple(standing.values()))
        if not reads:
            continue
        for told in drain(subscription):
            if told.dropped > dropped:
                known, dropped = {}, told.dropped
            if told.verdict is None:
                continue
            if told.verdict.state is VerdictState.CLOSE:
                known.pop(told.verdict.victim, None)
            else:
                known[told.verdict.victim] = told.verdict
        assert known == standing
