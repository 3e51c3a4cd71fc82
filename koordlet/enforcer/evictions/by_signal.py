"""Evictions on a host without Kubernetes: SIGTERM to all processes of a cgroup, and SIGKILL after the grace.

An eviction that has begun goes on to its end, and the next one waits for the cool-down. Processes that do not end even
then (a task in uninterruptible sleep) are given up, and their cgroup is not evicted again for some minutes.
"""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from api.intents import Evict
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_intent
from koordlet.enforcer.evictions.pace import Pace
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import inode
from koordlet.host.cgroups.processes import pids_below

KILL_SECONDS = 10.0
"""Time that processes have to end after SIGKILL."""
GIVEN_UP_SECONDS = 600.0


@dataclass(slots=True)
class _Eviction:
    intent: Evict
    directory: Path
    identity: str
    kill_at: float
    killed_at: float | None = None


class Evictions:
    """The evictions under way. Times are monotonic seconds."""

    def __init__(self, writer: Writer, directory_of: Callable[[str], Path], pace: Pace, *, enabled: bool) -> None:
        self._writer = writer
        self._directory_of = directory_of
        self._pace = pace
        self._running: dict[str, _Eviction] = {}
        self._given_up: dict[str, float] = {}
        """Cgroups whose processes did not end, to the time."""
        self.enabled = enabled

    @property
    def targets(self) -> tuple[str, ...]:
        """Cgroups that are being evicted."""
        return tuple(self._running)

    def begin(self, intent: Evict, now_seconds: float) -> EnforcerEvent | None:
        """Begin one and return its event, None if it is under way. Raises CgroupGone, Unsupported or OSError."""
        if intent.target in self._running:
            return None
        if now_seconds - self._given_up.get(intent.target, -GIVEN_UP_SECONDS) < GIVEN_UP_SECONDS:
            return of_intent(intent, Outcome.BACKING_OFF, "its processes did not end when they were killed")
        wait = self._pace.reason(now_seconds)
        if wait:
            return of_intent(intent, Outcome.COOLDOWN, f"{intent.reason}; {wait}")
        directory = self._directory_of(intent.target)
        identity = inode(directory)
        if identity is None or not pids_below(directory):
            return of_intent(intent, Outcome.GONE, "no process is left there")
        count = self._writer.signal(directory, signal.SIGTERM)
        self._pace.note(now_seconds)
        self._running[intent.target] = _Eviction(intent, directory, identity, now_seconds + intent.grace_seconds)
        return self._event(intent, Outcome.TERMINATED, directory, count)

    def advance(self, now_seconds: float) -> Iterator[EnforcerEvent]:
        """Kill the processes that outlived their grace."""
        for target, eviction in list(self._running.items()):
            directory = eviction.directory
            try:
                if inode(directory) != eviction.identity or not pids_below(directory):
                    del self._running[target]
                elif eviction.killed_at is not None and now_seconds - eviction.killed_at >= KILL_SECONDS:
                    del self._running[target]
                    self._given_up[target] = now_seconds
                    reason = f"its processes did not end within {KILL_SECONDS:.0f} s of SIGKILL"
                    yield of_intent(eviction.intent, Outcome.FAILED, reason)
                elif now_seconds >= eviction.kill_at:
                    count = self._writer.signal(directory, signal.SIGKILL)
                    is_first, eviction.killed_at = eviction.killed_at is None, eviction.killed_at or now_seconds
                    if self._writer.is_dry:
                        del self._running[target]
                    if is_first:
                        yield self._event(eviction.intent, Outcome.KILLED, directory, count)
            except OSError as error:
                yield of_intent(eviction.intent, Outcome.FAILED, str(error))

    @staticmethod
    def _event(intent: Evict, outcome: Outcome, directory: Path, count: int) -> EnforcerEvent:
        procs = str(directory / "cgroup.procs")
        return of_intent(intent, outcome, intent.reason, file=procs, before=f"{count} processes", after="0 processes")
