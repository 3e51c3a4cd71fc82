"""Locks of nodes for device plugins that serve one pod at a time."""

import pytest

from scheduler.devices.candidates import DeviceError
from scheduler.devices.vendors import LOCKS, METAX, NodeLock, NodeLocks

KEY = LOCKS[METAX]
LOCK = NodeLock(1_000_000.0, "ns/p")


def test_a_lock_is_written_as_it_is_read() -> None:
    assert LOCK.text == "1970-01-12T13:46:40Z,ns,p"
    assert NodeLock.read(LOCK.text) == LOCK
    assert NodeLock.read("1970-01-12T21:46:40+08:00,ns,p") == LOCK


@pytest.mark.parametrize("text", ["x", "1970-01-12T13:46:40Z,p", "soon,ns,p", ",,"])
def test_what_is_no_lock_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(DeviceError, match="remove the annotation"):
        NodeLocks().held("n", KEY, {KEY: text})


def test_a_lock_is_held_before_the_watch_shows_it_and_until_the_plugin_removes_it() -> None:
    locks = NodeLocks()
    assert locks.held("n", KEY, {}) is None
    locks.take("n", KEY, LOCK)
    locks.seen("n", {})
    assert locks.held("n", KEY, {}) == LOCK
    assert locks.held("m", KEY, {}) is None
    locks.seen("n", {KEY: LOCK.text})
    assert locks.held("n", KEY, {KEY: LOCK.text}) == LOCK
    assert locks.held("n", KEY, {}) is None


def test_a_lock_goes_with_its_node() -> None:
    locks = NodeLocks()
    locks.take("n", KEY, LOCK)
    locks.forget("n")
    assert locks.held("n", KEY, {}) is None
