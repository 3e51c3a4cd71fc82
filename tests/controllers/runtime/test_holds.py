"""Holds: under way, not seen yet, failed lately."""

from random import Random

from cluster import Backoff, Key
from controllers.runtime.holds import SWEEP_AT, UNSEEN_SECONDS, Holds
from controllers.runtime.writes import Target

NODE = Target("nodes", Key("", "a"))


def holds() -> Holds:
    return Holds(Backoff(1.0, 8.0, jitter=0.0), Random(1))


def test_a_target_is_held_while_a_write_is_under_way_and_until_its_result_is_seen() -> None:
    it = holds()
    assert not it.held(NODE, lambda _: "5", 0.0)
    it.begin(NODE)
    assert it.held(NODE, lambda _: "9", 0.0)
    it.done(NODE, "9", 1.0)
    assert it.held(NODE, lambda _: "8", 1.0)
    assert it.held(NODE, lambda _: "", 1.0), "a created object that no watch showed yet"
    assert not it.held(NODE, lambda _: "10", 1.0)
    assert len(it) == 0


def test_a_result_that_no_watch_ever_shows_is_given_up() -> None:
    it = holds()
    it.begin(NODE)
    it.done(NODE, "9", 0.0)
    assert it.held(NODE, lambda _: "", UNSEEN_SECONDS - 1)
    assert not it.held(NODE, lambda _: "", UNSEEN_SECONDS)


def test_delays_grow_with_failures_in_a_row_and_end_with_a_success() -> None:
    it = holds()
    assert [it.failed(NODE, 0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert it.held(NODE, lambda _: "5", 7.9)
    assert not it.held(NODE, lambda _: "5", 8.0)
    it.done(NODE, "", 9.0)
    assert it.failed(NODE, 10.0) == 1.0


def test_what_was_dropped_is_free_again() -> None:
    it = holds()
    it.begin(NODE)
    it.dropped(NODE)
    assert not it.held(NODE, lambda _: "5", 0.0)


def test_a_new_leader_forgets_all_but_what_is_under_way() -> None:
    it, other = holds(), Target("nodes", Key("", "b"))
    it.failed(NODE, 0.0)
    it.begin(other)
    it.clear()
    assert not it.held(NODE, lambda _: "5", 0.0)
    assert it.held(other, lambda _: "5", 0.0)


def test_results_of_objects_that_are_gone_are_let_go() -> None:
    it = holds()
    for number in range(4 * SWEEP_AT):
        it.done(Target("pods", Key("d", str(number))), "9", float(number))
    assert len(it) <= SWEEP_AT
