"""Directories that come and go, on a plain file system: inotify is the same there."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.host.cgroups import tree_events
from koordlet.host.cgroups.tree_events import TreeEvents
from tests.waiting import wait_for


class Told:
    """Counts what is told."""

    def __init__(self) -> None:
        self.times = threading.Semaphore(0)

    def __call__(self) -> None:
        self.times.release()

    def expect(self) -> None:
        """Wait until something was told, and forget what else was."""
        assert self.times.acquire(timeout=20)
        while self.times.acquire(timeout=0.05):
            pass


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def events(told: Told) -> Iterator[TreeEvents]:
    running = TreeEvents(told)
    yield running
    running.close()
    running.close()


def test_pods_and_containers_that_come_and_go(tmp_path: Path, events: TreeEvents, told: Told) -> None:
    (tmp_path / "kubepods/burstable/pod-a").mkdir(parents=True)
    assert events.follow(tmp_path / "kubepods")
    assert events.follow(tmp_path / "kubepods")
    assert events.watches == 3
    container = tmp_path / "kubepods/burstable/pod-a/c1"
    container.mkdir()
    told.expect()
    (container / "inside").mkdir()  # what a container makes inside itself
    assert not told.times.acquire(timeout=0.2)
    (container / "inside").rmdir()
    container.rmdir()
    told.expect()
    later = tmp_path / "kubepods/pod-b"
    later.mkdir()
    told.expect()
    (later / "c2").mkdir()
    told.expect()


def test_a_directory_that_went_and_came_is_followed_again(tmp_path: Path, events: TreeEvents, told: Told) -> None:
    top = tmp_path / "kubepods"
    assert not events.follow(top)
    top.mkdir()
    assert events.follow(top)
    top.rmdir()
    wait_for(lambda: events.watches == 0)
    assert not events.follow(top)
    top.mkdir()
    assert events.follow(top)
    (top / "pod").mkdir()
    told.expect()


def test_watches_are_bounded(
    tmp_path: Path,
    events: TreeEvents,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tree_events, "MAX_WATCHES", 4)
    for number in range(10):
        (tmp_path / f"kubepods/pod-{number}").mkdir(parents=True)
    assert events.follow(tmp_path / "kubepods")
    assert events.watches == 4
    assert [one.message for one in caplog.records] == [
        "containers that live for a moment may be missed: no more than 4 directories are watched"
    ]
    (tmp_path / "kubepods/another").mkdir()
    told.expect()


def test_a_queue_that_overflowed_has_everything_looked_at(tmp_path: Path, events: TreeEvents, told: Told) -> None:
    (tmp_path / "kubepods").mkdir()
    events.follow(tmp_path / "kubepods")
    assert events._take(tree_events._EVENT.pack(-1, tree_events._IN_Q_OVERFLOW, 0, 0))
    assert not events._take(b"")
    assert not events._take(b"torn")
    os.mkdir(tmp_path / "kubepods/\udcff")  # a name that is no text
    told.expect()
