"""Ends all processes of a cgroup on a host without Kubernetes: SIGTERM, and SIGKILL after the grace.

Once begun, an eviction goes on to its end, and the next one waits for the cool-down.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from api.intents import Evict
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_intent
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import inode


@dataclass(frozen=True, slots=True)
class _Ending:
    evict: Evict
    directory: Path
    identity: str
    kill_at: float


class Evictions:
    """Times are monotonic seconds."""

    def __init__(self, hands: KernelWriter, directory_of: Callable[[str], Path], cooldown_seconds: float) -> None:
        self._hands = hands
        self._directory_of = directory_of
        self._cooldown_seconds = cooldown_seconds
        self._running: dict[str, _Ending] = {}
        self._last_begun = -math.inf

    @property
    def targets(self) -> tuple[str, ...]:
        """Whose end has begun and is not over."""
        return tuple(self._running)

    def ask(self, evict: Evict, now_seconds: float) -> EnforcerEvent | None:
        """Begin one, or say why not; None if it has begun already. Raises CgroupGone, Unsupported or OSError."""
        if evict.target in self._running:
            return None
        left = self._last_begun + self._cooldown_seconds - now_seconds
        if left > 0:
            return of_intent(evict, Outcome.COOLDOWN, f"{evict.reason}; the last eviction was too recent")
        directory = self._directory_of(evict.target)
        identity = inode(directory)
        if identity is None or not self._hands.processes(directory):
            return of_intent(evict, Outcome.GONE, "no process is left there")
        count = self._hands.terminate(directory)
        self._last_begun = now_seconds
        self._running[evict.target] = _Ending(evict, directory, identity, now_seconds + evict.grace_seconds)
        return self._event(evict, Outcome.TERMINATED, directory, count)

    def advance(self, now_seconds: float) -> Iterator[EnforcerEvent]:
        """Kill what outlived its grace."""
        for target, ending in list(self._running.items()):
            try:
                left = self._hands.processes(ending.directory) if inode(ending.directory) == ending.identity else 0
                if not left:
                    del self._running[target]
                elif now_seconds >= ending.kill_at:
                    count = self._hands.kill(ending.directory)
                    if self._hands.is_dry:
                        del self._running[target]
                    yield self._event(ending.evict, Outcome.KILLED, ending.directory, count)
            except OSError as error:
                yield of_intent(ending.evict, Outcome.FAILED, str(error))

    @staticmethod
    def _event(evict: Evict, outcome: Outcome, directory: Path, count: int) -> EnforcerEvent:
        procs = str(directory / "cgroup.procs")
        return of_intent(evict, outcome, evict.reason, file=procs, before=f"{count} processes", after="0 processes")
