"""The scheduling queue: pending pods that are active, backing off, or waiting for an event that could place them.

A rejected pod names the plugins that rejected it. An event wakes only pods rejected by a plugin that listens to
it (and whose hint agrees); a woken pod first sits out its back-off. Events that arrive while a pod is between
attempt and requeue count as well. Time comes in as an argument, in seconds.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count, islice
from typing import Any, TypeAlias

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import ObjectEvent, Reason

SortKey: TypeAlias = Callable[[PodInfo, float], tuple[Any, ...]]
Gate: TypeAlias = Callable[[PodInfo], Reason | None]
Hint: TypeAlias = Callable[[str, PodInfo, ObjectEvent], bool]
"""(plugin, pod, event): whether the event may place a pod that the plugin rejected."""

_FAILED = "ScheduleAttemptFailure"
MAX_EVENTS = 1024
SWEEP_AT = 256
"""Length of a heap from which stale entries are looked for."""


class QueueState(StrEnum):
    """State of a pending pod; the values are those of the `queue` label of `pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pending pod with the results of its attempts."""

    info: PodInfo
    first_seen: float
    queued_at: float
    state: QueueState = QueueState.ACTIVE
    attempts: int = 0
    rejected_by: frozenset[str] = frozenset()
    reason: str = ""
    retry_at: float = 0.0
    """When the back-off is over."""
    parked_at: float = 0.0
    started: int = 0
    """Number of its last attempt among all."""
    began_at: float = 0.0
    """When that attempt began."""
    events_seen: int = 0
    """Event number when the running attempt began."""
    ticket: int = 0
    """Heap entries with another ticket are stale."""
    goes_first: bool = False
    """Its next attempt comes before those of its equals, whenever these came."""


@dataclass(frozen=True, slots=True)
class QueueBackoff:
    """initial * 2^(attempts-1), at most `limit`, in seconds."""

    initial: float = 1.0
    limit: float = 10.0

    def seconds(self, attempts: int) -> float:
        """Back-off after this many attempts."""
        return 0.0 if attempts <= 0 else min(self.limit, self.initial * float(2 ** min(attempts - 1, 30)))


@dataclass(slots=True)
class PodQueue:
    """All pending pods. `gate` is PreEnqueue; `listeners` maps an event kind to the plugins it concerns."""

    sort_key: SortKey
    gate: Gate
    hint: Hint
    listeners: dict[str, frozenset[str]]
    backoff: QueueBackoff = field(default_factory=QueueBackoff)
    flush_after: float = 300.0
    _pods: dict[str, QueuedPod] = field(default_factory=dict)
    _active: list[tuple[Any, ...]] = field(default_factory=list)
    _waiting: list[tuple[float, int, str]] = field(default_factory=list)
    _parked: dict[str, set[str]] = field(default_factory=dict)
    """Unschedulable pods by the plugin that rejected them."""
    _tickets: Iterator[int] = field(default_factory=lambda: count(1))
    _events: deque[ObjectEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    """Those that came during an attempt that is not over."""
    _event_count: int = 0
    _flying: dict[str, int] = field(default_factory=dict)
    """Pods in flight in the order of their starts, each with the number of events before."""
    starts: int = 0
    """Attempts that have begun."""
    incoming: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Times that a pod came into a queue, by queue and what brought it there, as the stock scheduler spells both."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        """The pending pod, None when it is not queued."""
        return self._pods.get(uid)

    def pods(self) -> Iterable[QueuedPod]:
        """Every pending pod, in no order."""
        return self._pods.values()

    def counts(self) -> dict[str, int]:
        """Pods by state, as the `pending_pods` metric names them."""
        totals = dict.fromkeys((state.value for state in QueueState if state is not QueueState.IN_FLIGHT), 0)
        for queued in self._pods.values():
            if queued.state is not QueueState.IN_FLIGHT:
                totals[queued.state.value] += 1
        return totals

    def parked_by_plugin(self) -> dict[str, int]:
        """Unschedulable and gated pods by the plugin that rejects them."""
        return {plugin: len(uids) for plugin, uids in self._parked.items() if uids}

    def add(self, info: PodInfo, now: float) -> None:
        """A pod appeared or its object changed; a changed one gets another chance at once or after back-off."""
        queued = self._pods.get(info.uid)
        if queued is None:
            queued = self._pods[info.uid] = QueuedPod(info, now, now)
            self._admit(queued, now, "PodAdd")
            return
        changed = queued.info.cls is not info.cls or queued.state is QueueState.GATED
        queued.info = info
        if changed and queued.state in (QueueState.UNSCHEDULABLE, QueueState.GATED):
            self._wake(queued, now, "PodUpdate")
        elif changed and queued.state is QueueState.ACTIVE:
            self._admit(queued, now, "PodUpdate")

    def remove(self, uid: str) -> QueuedPod | None:
        """Forget a pod."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._unpark(queued)
            self._land(uid)
            queued.ticket = 0
        return queued

    def pop(self, now: float) -> QueuedPod | None:
        """The first active pod, in flight from here on; None when there is none."""
        self._flush(now)
        while self._active:
            *_, ticket, uid = heapq.heappop(self._active)
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket and queued.state is QueueState.ACTIVE:
                return self._start(queued, now)
        return None

    def take(self, uid: str, now: float) -> QueuedPod | None:
        """A named pod out of turn (a gang's next member); None when it is gated, in flight or unknown."""
        queued = self._pods.get(uid)
        if queued is None or queued.state in (QueueState.IN_FLIGHT, QueueState.GATED):
            return None
        self._unpark(queued)
        return self._start(queued, now)

    def in_flight(self) -> list[QueuedPod]:
        """Pods whose attempt is not over: tried, held at Permit or being bound. Safe from any thread."""
        return [queued for uid in list(self._flying) if (queued := self._pods.get(uid)) is not None]

    def requeue(self, info: PodInfo, now: float, *, rejected_by: frozenset[str], reason: str) -> None:
        """An attempt failed. Without a rejecting plugin (an error) the pod backs off; else it waits for events."""
        queued = self._pods.get(info.uid)
        if queued is None:
            return
        # A pod may be parked already: what failed was the room that preemption was to make for it.
        self._unpark(queued)
        queued.rejected_by, queued.reason = rejected_by, reason
        queued.retry_at = now + self.backoff.seconds(queued.attempts)
        again = not rejected_by or self._missed_event(queued)
        self._land(info.uid)
        if again:
            self._back_off(queued, _FAILED)
            return
        self._park(queued, QueueState.UNSCHEDULABLE, now, _FAILED)

    def on_event(self, event: ObjectEvent, now: float) -> None:
        """Something changed in the cluster: wake the pods it may place."""
        concerned = self.listeners.get(event.kind)
        if not concerned:
            return
        self._event_count += 1
        if self._flying:
            self._events.append(event)
        for plugin in concerned:
            for uid in list(self._parked.get(plugin, ())):
                queued = self._pods[uid]
                if queued.state is QueueState.UNSCHEDULABLE and self.hint(plugin, queued.info, event):
                    self._wake(queued, now, event.kind)
                elif queued.state is QueueState.GATED:
                    self._admit(queued, now, event.kind)

    def on_release(self, event: ObjectEvent, now: float, *, since: int, kin: Container[str]) -> None:
        """A placed pod gave its share back: wake those that were tried after it took it, its kin excepted.

        To all others nothing has changed since they were tried.
        """
        for plugin in self.listeners.get(event.kind, ()):
            for uid in list(self._parked.get(plugin, ())):
                queued = self._pods[uid]
                if (
                    queued.state is QueueState.UNSCHEDULABLE
                    and queued.started > since
                    and uid not in kin
                    and self.hint(plugin, queued.info, event)
                ):
                    self._wake(queued, now, event.kind)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Bring pods to the active queue at once, gates permitting."""
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is not None and queued.state not in (QueueState.IN_FLIGHT, QueueState.ACTIVE):
                self._admit(queued, now, "ForceActivate")

    def activate_first(self, uids: Iterable[str], now: float) -> None:
        """Bring pods to the active queue at once, gates permitting, before all pods of the same importance."""
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is not None and queued.state is not QueueState.IN_FLIGHT:
                queued.goes_first = True
                self._admit(queued, now, "ForceActivate")

    def next_wake(self) -> float | None:
        """Time at which the earliest back-off ends; None when nothing backs off."""
        return self._waiting[0][0] if self._waiting else None

    # Internals

    def _start(self, queued: QueuedPod, now: float) -> QueuedPod:
        self.starts += 1
        queued.started, queued.began_at = self.starts, now
        queued.state, queued.goes_first = QueueState.IN_FLIGHT, False
        queued.attempts += 1
        queued.events_seen = self._flying[queued.info.uid] = self._event_count
        return queued

    def _land(self, uid: str) -> None:
        """The pod's attempt is over: let go of the events that came before all others' began."""
        if self._flying.pop(uid, None) is None:
            return
        oldest = next(iter(self._flying.values()), self._event_count)
        while len(self._events) > self._event_count - oldest:
            self._events.popleft()

    def _admit(self, queued: QueuedPod, now: float, why: str) -> None:
        self._unpark(queued)
        reason = self.gate(queued.info)
        if reason is not None:
            queued.rejected_by, queued.reason = frozenset({reason.plugin}), reason.text
            self._park(queued, QueueState.GATED, now, why)
            return
        self.incoming[QueueState.ACTIVE.value, why] += 1
        queued.state, queued.queued_at = QueueState.ACTIVE, now
        queued.ticket = next(self._tickets)
        key = self.sort_key(queued.info, -math.inf if queued.goes_first else queued.queued_at)
        heapq.heappush(self._active, (*key, queued.ticket, queued.info.uid))
        self._sweep(self._active, QueueState.ACTIVE)

    def _wake(self, queued: QueuedPod, now: float, why: str) -> None:
        if queued.retry_at <= now:
            self._admit(queued, now, why)
        else:
            self._back_off(queued, why)

    def _back_off(self, queued: QueuedPod, why: str) -> None:
        self._unpark(queued)
        self.incoming[QueueState.BACKOFF.value, why] += 1
        queued.state, queued.ticket = QueueState.BACKOFF, next(self._tickets)
        heapq.heappush(self._waiting, (queued.retry_at, queued.ticket, queued.info.uid))
        self._sweep(self._waiting, QueueState.BACKOFF)

    def _sweep(self, heap: list[Any], state: QueueState) -> None:
        """Take stale entries out of a heap that is mostly such: a process that does not lead pops none."""
        if len(heap) > 2 * len(self._pods) + SWEEP_AT:
            heap[:] = [entry for entry in heap if self._is_current(entry[-2], entry[-1], state)]
            heapq.heapify(heap)

    def _is_current(self, ticket: int, uid: str, state: QueueState) -> bool:
        queued = self._pods.get(uid)
        return queued is not None and queued.ticket == ticket and queued.state is state

    def _park(self, queued: QueuedPod, state: QueueState, now: float, why: str) -> None:
        self.incoming[state.value, why] += 1
        queued.state, queued.parked_at = state, now
        for plugin in queued.rejected_by:
            self._parked.setdefault(plugin, set()).add(queued.info.uid)

    def _unpark(self, queued: QueuedPod) -> None:
        for plugin in queued.rejected_by:
            self._parked.get(plugin, set()).discard(queued.info.uid)

    def _missed_event(self, queued: QueuedPod) -> bool:
        """Return whether an event came in during the attempt that could have placed the pod."""
        missed = self._event_count - queued.events_seen
        if missed > len(self._events):
            return True
        return any(
            plugin in self.listeners.get(event.kind, ()) and self.hint(plugin, queued.info, event)
            for event in islice(self._events, len(self._events) - missed, None)
            for plugin in queued.rejected_by
        )

    def _flush(self, now: float) -> None:
        """Move pods whose back-off is over to the active queue."""
        while self._waiting and self._waiting[0][0] <= now:
            _, ticket, uid = heapq.heappop(self._waiting)
            queued = self._pods.get(uid)
            if queued is not None and queued.ticket == ticket and queued.state is QueueState.BACKOFF:
                self._admit(queued, now, "BackoffComplete")

    def flush_parked(self, now: float) -> None:
        """Try pods again that no event spoke for in a long time."""
        for queued in list(self._pods.values()):
            if queued.state is QueueState.UNSCHEDULABLE and now - queued.parked_at >= self.flush_after:
                self._wake(queued, now, "UnschedulableTimeout")
