"""Queues between the tick and the clients: nothing waits, nothing is lost silently, what stands is right again."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from api.verdicts import Verdict, VerdictState
from koordlet.serving.broadcast import StreamMessage, Subscription, VerdictBroadcast, VerdictFilter
from tests.verdicts import make_verdict

EVERYTHING = VerdictFilter()


def drain(subscription: Subscription) -> list[StreamMessage]:
    """Return the waiting messages; empty without any."""
    return subscription.take(0.0) or []


def test_what_stands_comes_first_then_a_mark_then_changes() -> None:
    broadcast = VerdictBroadcast(8)
    one, other = make_verdict("/a"), make_verdict("/b")
    broadcast.publish([one], (one,))
    subscription = broadcast.subscribe(EVERYTHING)
    assert drain(subscription) == [StreamMessage(one, 0), StreamMessage(None, 0)]
    broadcast.publish([other], (one, other))
    assert drain(subscription) == [StreamMessage(other, 0)]
    assert drain(subscription) == []


def test_a_change_before_the_snapshot_is_read_is_told_once() -> None:
    broadcast = VerdictBroadcast(8)
    subscription = broadcast.subscribe(EVERYTHING)
    verdict = make_verdict()
    broadcast.publish([verdict], (verdict,))
    assert drain(subscription) == [StreamMessage(verdict, 0), StreamMessage(None, 0)]


def test_filters_hold_for_the_snapshot_and_for_changes() -> None:
    broadcast = VerdictBroadcast(8)
    open_verdicts = tuple(make_verdict(path, resource=kind) for path in ("/a/1", "/b/1") for kind in ("cpu", "memory"))
    broadcast.publish(open_verdicts, open_verdicts)
    subscription = broadcast.subscribe(VerdictFilter("/a/*", "cpu"))
    assert [message.verdict for message in drain(subscription)] == [open_verdicts[0], None]
    broadcast.publish(open_verdicts, open_verdicts)
    assert [message.verdict for message in drain(subscription)] == [open_verdicts[0]]
    assert broadcast.open_verdicts(VerdictFilter(resource="memory")) == [open_verdicts[1], open_verdicts[3]]


def test_who_does_not_read_loses_messages_hears_how_many_and_gets_a_snapshot() -> None:
    broadcast = VerdictBroadcast(3)
    slow, quick = broadcast.subscribe(EVERYTHING), broadcast.subscribe(EVERYTHING)
    drain(slow), drain(quick)
    for number in range(6):
        verdict = make_verdict(f"/{number}")
        broadcast.publish([verdict], (verdict,))
        assert drain(quick) == [StreamMessage(verdict, 0)]
    last = make_verdict("/5")
    assert drain(slow) == [StreamMessage(last, 6), StreamMessage(None, 6)]
    assert broadcast.dropped == 6
    slow.close()
    assert broadcast.dropped == 6
    assert broadcast.clients == 1


def test_closing_wakes_who_waits() -> None:
    broadcast = VerdictBroadcast(3)
    subscription = broadcast.subscribe(EVERYTHING)
    drain(subscription)
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(subscription.take(30.0)))
    thread.start()
    subscription.close()
    thread.join(10.0)
    assert ended == [None]
    other = broadcast.subscribe(EVERYTHING)
    broadcast.close()
    assert other.take(30.0) is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), max_size=40),
    st.integers(min_value=1, max_value=4),
)
def test_a_client_that_follows_the_rules_always_knows_what_stands(
    steps: list[tuple[str, bool, bool]], queue_size: int
) -> None:
    broadcast = VerdictBroadcast(queue_size)
    subscription = broadcast.subscribe(EVERYTHING)
    open_verdicts: dict[str, Verdict] = {}
    known: dict[str, Verdict] = {}
    dropped = 0
    for victim, closes, reads in [*steps, ("a", True, True)]:
        verdict = make_verdict(victim, state=VerdictState.CLOSE if closes else VerdictState.OPEN)
        open_verdicts.pop(victim, None)
        if not closes:
            open_verdicts[victim] = verdict
        broadcast.publish([verdict], tuple(open_verdicts.values()))
        if not reads:
            continue
        for message in drain(subscription):
            if message.dropped > dropped:
                known, dropped = {}, message.dropped
            if message.verdict is None:
                continue
            if message.verdict.state is VerdictState.CLOSE:
                known.pop(message.verdict.victim, None)
            else:
                known[message.verdict.victim] = message.verdict
        assert known == open_verdicts
