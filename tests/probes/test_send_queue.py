"""The arithmetic of send queues (probes/c/send_queue.h), compiled for this machine."""

from collections import Counter
from pathlib import Path

import pytest

from api.frame import OTHER_ID
from tests.probes.test_plain_c import Run, compiled

A, B, C = 11, 12, 13
MS = 1_000_000
SEATS = 15
STALE_NS = 10_000_000_000


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(Path(tmp_path_factory.mktemp("plain_c")) / "queue", "-DSEND_QUEUE")


def shares(run: Run, events: list[str]) -> list[tuple[int, Counter[tuple[int, int]]]]:
    """Of each leave what is others', and the blame by victim and culprit."""
    found: list[tuple[int, Counter[tuple[int, int]]]] = []
    blame: Counter[tuple[int, int]] = Counter()
    for kind, *numbers in run("queue", "\n".join(events)):
        if kind == "blame":
            victim, culprit, ns = map(int, numbers)
            blame[victim, culprit] += ns
        else:
            found.append((int(numbers[0]), blame))
            blame = Counter()
    return found


def test_a_lone_sender_waits_behind_itself(queue: Run) -> None:
    events = [f"+ {A} {time} 1500 0" for time in range(1, 11)] + [f"- {packet} {5 * MS}" for packet in range(10)]
    assert [(others, dict(blame)) for others, blame in shares(queue, events)] == [(0, {})] * 10


def test_a_wait_is_shared_by_the_bytes_ahead(queue: Run) -> None:
    events = [f"+ {B} 1 6000 0", f"+ {C} 2 3000 0", f"+ {A} 3 500 0", f"+ {A} 4 500 0", f"- 3 {10 * MS + 4}"]
    [(others, blame)] = shares(queue, events)
    assert blame == {(A, B): 6 * MS, (A, C): 3 * MS}  # the last tenth is its own two packets
    assert others == 9 * MS


def test_what_left_is_no_longer_ahead(queue: Run) -> None:
    events = [f"+ {B} 1 6000 0", f"- 0 {MS}", f"+ {A} {MS} 1500 0", f"- 1 {2 * MS}"]
    assert [others for others, _ in shares(queue, events)] == [0, 0]


def test_pacing_that_the_sender_asked_for_is_its_own(queue: Run) -> None:
    events = [f"+ {B} 1 1000 0", f"+ {A} 2 1000 {4 * MS}", f"- 1 {10 * MS + 2}"]
    [(others, blame)] = shares(queue, events)
    assert others == blame[A, B] == 3 * MS  # half of the six milliseconds beyond the pace
    events = [f"+ {B} 1 1000 0", f"+ {A} 2 1000 {40 * MS}", f"- 1 {10 * MS}"]
    assert shares(queue, events) == [(0, Counter())]


def test_packets_of_unknown_senders_are_others(queue: Run) -> None:
    [(others, blame)] = shares(queue, ["+ 0 1 3000 0", f"+ {A} 2 1000 0", f"- 1 {4 * MS + 2}"])
    assert others == blame[A, OTHER_ID] == 3 * MS


def test_the_heaviest_are_named_where_seats_run_out(queue: Run) -> None:
    small = [f"+ {100 + number} 1 100 0" for number in range(SEATS)]
    [(_, blame)] = shares(queue, [*small, f"+ {B} 2 60000 0", f"+ {A} 3 200 0", f"- {SEATS + 1} {10 * MS}"])
    named = {culprit: ns for (_, culprit), ns in blame.items()}
    assert max(named, key=lambda culprit: named[culprit]) == B
    assert OTHER_ID in named  # those that lost their seats to B and A


def test_counts_are_corrected_by_what_the_queue_holds(queue: Run) -> None:
    lost = [f"+ {B} {time} 1000 0" for time in range(1, 100)]  # none is seen to leave
    events = [*lost, "= 1000", f"+ {A} 100 1000 0", f"- 99 {2 * MS + 100}"]
    [(others, _)] = shares(queue, events)
    assert others == MS


def test_a_queue_without_events_for_long_holds_nothing(queue: Run) -> None:
    events = [f"+ {B} 1 9000 0", f"+ {A} {STALE_NS + 2} 1000 0", f"- 1 {STALE_NS + MS}"]
    assert shares(queue, events) == [(0, Counter())]
