"""Events of the enforcer: one for each decision, for the audit, the counts, and the strategy that asked."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from api.intents import Evict, Intent, Reclaim, Setting
from koordlet.enforcer.audit import ACTIONS, AuditFile, Line, Outcome
from koordlet.enforcer.journal_format import JournalEntry

if TYPE_CHECKING:
    from api.tree_classes import TreeClasses

EVICT = "evict"
"""Name of an eviction where events and counts name a knob."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks at once: leases and budgets go by the monotonic one, records for people by the other."""

    monotonic_seconds: float
    wall_seconds: float


class StepClock:
    """Time of the present step, read once, so that all its decisions and records agree."""

    def __init__(self) -> None:
        self.now = Clocks(0.0, 0.0)

    def start_step(self, now: Clocks | None) -> None:
        """Take the time from the clocks, or from the caller."""
        self.now = now or Clocks(time.monotonic(), time.time())

    @property
    def monotonic_seconds(self) -> float:
        """For leases, budgets and back-off."""
        return self.now.monotonic_seconds

    @property
    def wall_seconds(self) -> float:
        """For records."""
        return self.now.wall_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerEvent:
    """One decision about one attribute, or about a whole intent (`file` is empty)."""

    strategy: str
    verdict: str = ""
    target: str
    knob: str
    """A `Knob`, `reclaim` or `evict`."""
    file: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    lease_seconds: float = 0.0
    outcome: Outcome


def of_intent(
    intent: Intent, outcome: Outcome, reason: str, *, file: str = "", before: str = "", after: str | None = None
) -> EnforcerEvent:
    """Event of an intent."""
    return EnforcerEvent(
        strategy=intent.strategy,
        verdict=intent.verdict,
        target=intent.target,
        knob=knob_name(intent),
        file=file,
        before=before,
        after=_requested(intent) if after is None else after,
        reason=reason,
        lease_seconds=intent.lease_seconds if isinstance(intent, Setting) else 0.0,
        outcome=outcome,
    )


def of_entry(entry: JournalEntry, outcome: Outcome, reason: str, *, before: str) -> EnforcerEvent:
    """Event of an attribute that was restored, set again or given up."""
    after = entry.original if outcome in (Outcome.RESTORED, Outcome.FAILED) else before
    return EnforcerEvent(
        strategy=entry.strategy,
        verdict=entry.verdict,
        target=entry.target,
        knob=entry.knob,
        file=entry.attribute.key,
        before=before,
        after=entry.ours[-1] if outcome is Outcome.SET_AGAIN else after,
        reason=reason,
        outcome=outcome,
    )


def knob_name(intent: Intent) -> str:
    """Name of the knob, `reclaim` or `evict`."""
    if isinstance(intent, Setting):
        return intent.knob.value
    return EVICT if isinstance(intent, Evict) else "reclaim"


def _requested(intent: Intent) -> str:
    if isinstance(intent, Setting):
        return intent.value
    return str(intent.amount_bytes) if isinstance(intent, Reclaim) else ""


@dataclass(frozen=True, slots=True)
class _Identity:
    """What the audit says of a target besides its path."""

    name: str = ""
    qos: str = ""
    priority: str = ""


def _identity(tree: "TreeClasses | None", target: str) -> _Identity:
    """Return what is known of a target; nothing of what is no present cgroup, as a resource group or a sysctl."""
    info = tree.cgroups.get(target) if tree is not None else None
    if tree is None or info is None:
        return _Identity()
    number = "" if info.priority is None else str(info.priority)
    # The root holds all classes, so that they say nothing of an action there.
    classes = ",".join(sorted(filter(None, tree.within(target)))) if target != "/" else ""
    return _Identity(info.name, classes, info.priority_band or number)


_RECENT = 100

_EventKey = tuple[str, str, str, str]


class EventLog:
    """Writes the audit and keeps the counts. An event that repeats in a step or from step to step is audited once."""

    def __init__(self, audit: AuditFile | None, clock: StepClock, *, dry_run: bool) -> None:
        self._audit = audit
        self._clock = clock
        self._dry_run = dry_run
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._last_step: dict[_EventKey, tuple[str, Outcome]] = {}
        self._this_step: dict[_EventKey, tuple[str, Outcome]] = {}
        self._events: list[EnforcerEvent] = []
        self.recent: deque[Line] = deque(maxlen=_RECENT)
        """The newest audited lines, oldest first, with or without an audit file."""
        self.tree: TreeClasses | None = None
        """Names and classes of the present cgroups; None where only a journal tells of them."""

    @property
    def counts(self) -> Mapping[tuple[str, str, str], int]:
        """Number of audited events by (strategy, knob, outcome); unchanged and repeated ones do not count."""
        return dict(self._counts)

    @property
    def lost_lines(self) -> int:
        """Audit lines that could not be written."""
        return self._audit.lost if self._audit else 0

    def emit(self, event: EnforcerEvent) -> None:
        """Record one event of this step."""
        self._events.append(event)
        if event.outcome == Outcome.UNCHANGED:
            return
        key = (event.strategy, event.target, event.knob, event.file)
        content = (event.after, event.outcome)
        if event.outcome not in ACTIONS:
            known = (self._last_step.get(key), self._this_step.get(key))
            self._this_step[key] = content
            if content in known:
                return
        self._counts[event.strategy, event.knob, event.outcome.value] += 1
        line = self._line(event)
        self.recent.append(line)
        if self._audit:
            self._audit.write(line)

    @property
    def pending(self) -> int:
        """Number of this step's events so far."""
        return len(self._events)

    def take_since(self, number: int) -> list[EnforcerEvent]:
        """Return the events after so many, which the step then does not return."""
        events = self._events[number:]
        del self._events[number:]
        return events

    def end_step(self) -> list[EnforcerEvent]:
        """All events of the step, repeated ones included."""
        events, self._events = self._events, []
        self._last_step, self._this_step = self._this_step, {}
        return events

    def _line(self, event: EnforcerEvent) -> Line:
        identity = _identity(self.tree, event.target)
        return Line(
            time=datetime.fromtimestamp(self._clock.wall_seconds, UTC).isoformat(timespec="milliseconds"),
            strategy=event.strategy,
            verdict=event.verdict,
            target=event.target,
            name=identity.name,
            qos=identity.qos,
            priority=identity.priority,
            file=event.file,
            before=event.before,
            after=event.after,
            reason=event.reason,
            dry_run=self._dry_run,
            lease_seconds=event.lease_seconds,
            outcome=event.outcome,
        )

    def close(self) -> None:
        """Idempotent."""
        if self._audit:
            self._audit.close()
