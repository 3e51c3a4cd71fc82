"""The view of another agent: what arrives, and what happens while it is away."""

from collections.abc import Iterator
from threading import Event

import pytest

from api.frame import Frame
from koordlet.agent.frame_store import FrameStore
from koordlet.top import remote
from koordlet.top.remote import RemoteAgent
from tests.frames import make_frame
from tests.verdicts import make_verdict
from tests.waiting import wait_for


def frame(seconds: float) -> Frame:
    """A frame of two cgroups."""
    used = int(1e9 * seconds)
    return make_frame(seconds, {1: "/", 2: "/a"}, {"cpu.oncpu_ns": [used, used], "cpu.wait_count": [0, used]})


class Gone(Exception):
    pass


def store() -> FrameStore:
    return FrameStore(60.0, 1.0)


def test_each_frame_is_shown_once_with_the_verdicts_of_its_time() -> None:
    release = Event()

    def frames() -> Iterator[Frame]:
        yield frame(0.0)
        yield frame(1.0)
        release.wait(60)

    verdict = make_verdict("/a")
    agent = RemoteAgent(frames, lambda: [verdict], store, Gone)
    assert agent.window(60.0) is None
    agent.start()
    window = wait_for(lambda: agent.window(60.0))
    assert window.last.wall_ns == frame(1.0).wall_ns
    assert agent.open_verdicts == [verdict]
    assert agent.window(60.0) is None
    agent.stop()
    release.set()


def test_an_agent_that_comes_back_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRY_SECONDS", 0.01)
    calls = 0
    release = Event()

    def frames() -> Iterator[Frame]:
        nonlocal calls
        calls += 1
        yield frame(float(calls))
        if calls < 3:
            raise Gone(f"away {calls}")
        yield frame(calls + 1.0)
        release.wait(60)

    agent = RemoteAgent(frames, list, store, Gone)
    agent.start()
    window = wait_for(lambda: agent.window(60.0))
    # Counters of an agent that started again do not continue those of the one before.
    assert [each.wall_ns for each in window.frames] == [frame(3.0).wall_ns, frame(4.0).wall_ns]
    assert agent.problem == ""
    agent.stop()
    release.set()
