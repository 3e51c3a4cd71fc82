"""Tripwire in the kernel: reports a watched cgroup at once when it loses more than its budget to possible culprits."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from probes.bpf_object import BpfObject
from probes.libbpf import RingBuffer

U64 = np.dtype(np.uint64)
WATCHED_RECORD = np.dtype(
    [
        ("budget_ns", U64),
        ("window_ns", U64),
        ("since_ns", U64),
        ("lost_ns", U64),
        ("culprit", U64),
        ("votes_ns", U64),
        ("reported_ns", U64),
    ]
)
TRIP_RECORD = np.dtype([("victim", U64), ("culprit", U64), ("lost_ns", U64), ("span_ns", U64), ("at_ns", U64)])


@dataclass(frozen=True, slots=True)
class Trip:
    """One cgroup lost more than its budget to cgroups that may be acted on."""

    victim: int
    culprit: int
    """Cgroup that took most of it."""
    lost_ns: int
    span_ns: int
    """Duration in which it was lost."""
    at_ns: int
    """Monotonic time of the report."""

    @property
    def lost_seconds_per_second(self) -> float:
        """Rate of the loss; a span is at least as long as one thread's loss in it."""
        return self.lost_ns / max(self.span_ns, 1)


class Tripwire:
    """Watched cgroups, and the trips that wait to be read."""

    def __init__(self, bpf: BpfObject) -> None:
        self._watched = bpf.map("watched", U64, WATCHED_RECORD)
        self._waiting: list[Trip] = []
        self._ring = RingBuffer(bpf.map_fd("trips"), self._take)
        self._quietable = bpf.map("quietable", U64, np.dtype(np.uint8))
        self._budgets: dict[int, tuple[int, int]] = {}
        self._culprits: set[int] = set()

    def watch(self, budgets: dict[int, tuple[int, int]], culprits: AbstractSet[int]) -> None:
        """Watch these cgroups and no others: id to (budget_ns, window_ns); what stays as it was is left alone.

        Only what they lose to `culprits` counts: the cgroups that may be acted on. Raises BpfError where a map is full;
        what came into it until then is known, and taken out by a later call.
        """
        self._allow(culprits)
        gone = [identity for identity in self._budgets if identity not in budgets]
        if gone:
            self._watched.delete(np.array(gone, dtype=np.uint64))
            self._budgets = {identity: kept for identity, kept in self._budgets.items() if identity in budgets}
        for identity, limits in budgets.items():
            if self._budgets.get(identity) != limits:
                record = np.zeros(1, dtype=WATCHED_RECORD)
                record["budget_ns"], record["window_ns"] = limits
                self._watched.update(identity, record)
                self._budgets[identity] = limits

    def _allow(self, culprits: AbstractSet[int]) -> None:
        gone = self._culprits - culprits
        if gone:
            self._quietable.delete(np.array(sorted(gone), dtype=np.uint64))
            self._culprits -= gone
        for identity in culprits - self._culprits:
            self._quietable.update(identity, np.ones(1, dtype=np.uint8))
            self._culprits.add(identity)

    def wait(self, timeout_seconds: float) -> list[Trip]:
        """Return the trips that wait, or the first that comes within the timeout; empty when none does."""
        self._ring.poll(int(timeout_seconds * 1000))
        trips, self._waiting = self._waiting, []
        return trips

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._ring.close()

    def _take(self, record: bytes) -> None:
        row = np.frombuffer(record, dtype=TRIP_RECORD)[0]
        self._waiting.append(Trip(*(int(row[name]) for name in TRIP_RECORD.names or ())))
