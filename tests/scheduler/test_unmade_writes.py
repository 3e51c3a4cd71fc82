"""Failed writes are made again, each target once, with growing waits."""

from cluster.resources import PODS, Key, merge_patch
from scheduler.framework import Verb, Write
from scheduler.unmade_writes import LONGEST_WAIT_SECONDS, UnmadeWrites


def write(name: str, text: str = "x") -> Write:
    return Write(Verb.PATCH_STATUS, PODS, Key("default", name), merge_patch({"status": text}))


def test_a_failed_write_is_made_again_later_and_later() -> None:
    unmade, failing = UnmadeWrites(), write("p")
    now, waits = 0.0, []
    unmade.failed(failing, now)
    for _ in range(8):
        before = now
        while not unmade.due(now):
            now += 0.5
        waits.append(now - before)
        unmade.failed(failing, now)
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_later_write_to_the_same_target_replaces_a_failed_one() -> None:
    unmade = UnmadeWrites()
    unmade.failed(write("p", "old"), 0.0)
    unmade.replaced(write("p", "new"))
    assert not unmade.due(10.0)
    fresh = write("q", "new")
    unmade.failed(fresh, 0.0)
    unmade.failed(write("q", "old"), 0.0)
    assert unmade.due(10.0) == [fresh]


def test_a_write_that_does_not_come_back_has_succeeded() -> None:
    unmade = UnmadeWrites()
    unmade.failed(write("p"), 0.0)
    assert len(unmade.due(2.0)) == 1
    assert not unmade.due(3.0)
    assert not unmade.due(3.0 + LONGEST_WAIT_SECONDS)
    assert len(unmade) == 0
