"""What the enforcer says of each decision: to the audit, to its counts, and back to whoever wished."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from api.intents import Evict, Intent, Reclaim, Setting
from koordlet.enforcer.audit import ACTIONS, AuditFile, Line, Outcome
from koordlet.enforcer.journal_format import JournalEntry


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks at once: leases and budgets go by the monotonic one, records for people by the other."""

    monotonic_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerEvent:
    """One decision about one place, or about a whole wish (`file` is empty)."""

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
    """The event of a wish."""
    return EnforcerEvent(
        strategy=intent.strategy,
        verdict=intent.verdict,
        target=intent.target,
        knob=_knob(intent),
        file=file,
        before=before,
        after=_wanted(intent) if after is None else after,
        reason=reason,
        lease_seconds=intent.lease_seconds if isinstance(intent, Setting) else 0.0,
        outcome=outcome,
    )


def of_entry(entry: JournalEntry, outcome: Outcome, reason: str, *, before: str) -> EnforcerEvent:
    """The event of something put back, or given up."""
    return EnforcerEvent(
        strategy=entry.strategy,
        verdict=entry.verdict,
        target=entry.target,
        knob=entry.knob,
        file=entry.place.key,
        before=before,
        after=entry.original if outcome in (Outcome.RESTORED, Outcome.FAILED) else before,
        reason=reason,
        outcome=outcome,
    )


def _knob(intent: Intent) -> str:
    if isinstance(intent, Setting):
        return intent.knob.value
    return "evict" if isinstance(intent, Evict) else "reclaim"


def _wanted(intent: Intent) -> str:
    if isinstance(intent, Setting):
        return intent.value
    return str(intent.amount_bytes) if isinstance(intent, Reclaim) else ""


class EventLog:
    """Keeps the audit and the counts. What repeats itself from step to step is told once."""

    def __init__(self, audit: AuditFile | None, *, dry_run: bool) -> None:
        self._audit = audit
        self._dry_run = dry_run
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._told: dict[tuple[str, str, str, str], tuple[str, Outcome]] = {}
        self._telling: dict[tuple[str, str, str, str], tuple[str, Outcome]] = {}
        self._events: list[EnforcerEvent] = []

    @property
    def counts(self) -> Mapping[tuple[str, str, str], int]:
        """(strategy, knob, outcome) to how often it was audited; what merely stands or repeats does not count."""
        return dict(self._counts)

    @property
    def lost_lines(self) -> int:
        """Audit lines that could not be written."""
        return self._audit.lost if self._audit else 0

    def tell(self, event: EnforcerEvent, now: Clocks) -> None:
        """Take one event of this step."""
        self._events.append(event)
        if event.outcome == Outcome.UNCHANGED:
            return
        key = (event.strategy, event.target, event.knob, event.file)
        said = (event.after, event.outcome)
        if event.outcome not in ACTIONS:
            self._telling[key] = said
            if self._told.get(key) == said:
                return
        self._counts[event.strategy, event.knob, event.outcome.value] += 1
        if self._audit:
            self._audit.write(self._line(event, now))

    def finish(self) -> list[EnforcerEvent]:
        """End the step: everything that was told in it, repetitions included."""
        events, self._events = self._events, []
        self._told, self._telling = self._telling, {}
        return events

    def _line(self, event: EnforcerEvent, now: Clocks) -> Line:
        return Line(
            time=datetime.fromtimestamp(now.wall_seconds, UTC).isoformat(timespec="milliseconds"),
            strategy=event.strategy,
            verdict=event.verdict,
            target=event.target,
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
