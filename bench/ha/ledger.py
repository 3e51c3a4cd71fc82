"""The record of one trial: leases, writes and bindings as the proxies passed them on, and what is wrong with them."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

LEASE_SECONDS = 15.0
"""Duration of the lease, the schedulers' default."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another process became the leader. Seconds on the monotonic clock."""

    at_seconds: float
    holder: str
    before_seconds: float
    """Last renewal by the holder before."""


@dataclass(slots=True)
class Takeover:
    """A change of leader, and the first binding that the API server took from the new one."""

    change: Change
    first_binding_seconds: float | None = None


@dataclass
class Ledger:
    """Facts of a trial, from the threads of all proxies."""

    holder: str = ""
    renewed_seconds: float = 0.0
    takeovers: list[Takeover] = field(default_factory=list)
    bindings: Counter[str] = field(default_factory=Counter)
    """Bindings that the API server took, by UID of the pod."""
    writes: Counter[str] = field(default_factory=Counter)
    """Writes that the API server took, by replica."""
    refused: Counter[str] = field(default_factory=Counter)
    """Writes that reached the API server and were refused, by method and status."""
    foreign: list[str] = field(default_factory=list)
    """Writes that reached the API server while another process held the lease."""
    expired: list[str] = field(default_factory=list)
    """Writes that reached the API server after the sender's lease had run out, before another one took it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lease_written(self, holder: str, sent_seconds: float) -> None:
        """The API server took a lease: `holder` leads from now on."""
        with self._lock:
            if holder and holder != self.holder:
                self.takeovers.append(Takeover(Change(time.monotonic(), holder, self.renewed_seconds)))
            self.holder = holder
            self.renewed_seconds = sent_seconds

    def write_forwarded(self, identity: str, what: str) -> None:
        """A write is about to reach the API server."""
        with self._lock:
            age = time.monotonic() - self.renewed_seconds
            if not identity or self.holder != identity:
                self.foreign.append(
                    f"{what} by {identity or 'a process that never led'}, {self.holder or 'none'} leads"
                )
            elif age > LEASE_SECONDS:
                self.expired.append(f"{what} by {identity}, {age:.1f} s after its last renewal")

    def write_answered(self, replica: str, identity: str, method: str, status: int, bound_uid: str) -> None:
        """The API server answered a write; `bound_uid` is the pod of a binding."""
        with self._lock:
            if status >= 300:
                self.refused[f"{method} {status}"] += 1
                return
            self.writes[replica] += 1
            if bound_uid:
                self.bindings[bound_uid] += 1
                takeover = self.takeovers[-1] if self.takeovers else None
                if takeover and takeover.first_binding_seconds is None and takeover.change.holder == identity:
                    takeover.first_binding_seconds = time.monotonic()

    @property
    def doubled(self) -> list[str]:
        """UIDs of pods of which the API server took more than one binding."""
        with self._lock:
            return [uid for uid, count in self.bindings.items() if count > 1]
