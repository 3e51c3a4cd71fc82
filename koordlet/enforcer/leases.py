"""Leases: settings in effect, resource groups that the agent made, and attributes that could not be restored yet."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from api.intents import Knob, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.events import EventLog, StepClock, of_entry
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.rollback import Ownership, RollbackResult, inspect, roll_back
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile, TrafficClass

_VERIFY_ALL_UP_TO = 256
_VERIFY_STEPS = 5
_RETRY_SECONDS = 10.0


@dataclass(slots=True)
class Lease:
    """A setting in effect."""

    setting: Setting
    entries: dict[str, JournalEntry]
    """By the attribute's key; empty where the value was there already when it was first asked for."""
    end_seconds: float
    """On the monotonic clock."""


class Leases:
    """Keeps, verifies and releases the leases; backs off from knobs that another program writes."""

    def __init__(
        self, journal: Journal | NoJournal, writer: Writer, log: EventLog, clock: StepClock, backoff_seconds: float
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._log = log
        self._clock = clock
        self._backoff_seconds = backoff_seconds
        self.active: dict[Owner, Lease] = {}
        self.groups: dict[str, JournalEntry] = {}
        """Resource groups that the agent made, by name."""
        self._unrestored: dict[str, JournalEntry] = {}
        self._retry_at = -math.inf
        self._backoffs: dict[Owner, tuple[float, str]] = {}
        """Monotonic second until which a knob is not written, with the reason."""
        self._steps = 0

    def backoff_reason(self, owner: Owner) -> str:
        """Reason why a knob is not written at present; empty if it may be."""
        until, reason = self._backoffs.get(owner, (-math.inf, ""))
        return reason if until > self._clock.monotonic_seconds else ""

    def back_off(self, owner: Owner, reason: str, seconds: float | None = None) -> None:
        """Do not write a knob for `seconds`, or for as long as after a foreign write."""
        duration = self._backoff_seconds if seconds is None else seconds
        self._backoffs[owner] = (self._clock.monotonic_seconds + duration, reason)

    def claims(self) -> dict[str, Owner | None]:
        """Owner of each attribute that is changed; None for those that an earlier change still has to be undone at."""
        owned: dict[str, Owner | None] = {key: owner for owner, lease in self.active.items() for key in lease.entries}
        return owned | dict.fromkeys(self._unrestored)

    def verify(self) -> None:
        """Check that the leases are in effect; of many, a fifth in each step."""
        now = self._clock.monotonic_seconds
        self._backoffs = {owner: backoff for owner, backoff in self._backoffs.items() if backoff[0] > now}
        owners = list(self.active)
        if sum(len(lease.entries) for lease in self.active.values()) > _VERIFY_ALL_UP_TO:
            owners = owners[self._steps % _VERIFY_STEPS :: _VERIFY_STEPS]
        self._steps += 1
        for owner in owners:
            self.verify_one(owner)

    def verify_one(self, owner: Owner) -> None:
        """Check one lease; give it up if its cgroup is gone or another program wrote to it."""
        foreign: list[RollbackResult] = []
        gone: list[RollbackResult] = []
        for entry in self.active[owner].entries.values():
            if entry.by_kernel:
                continue
            try:
                ownership, text = inspect(entry, self._writer)
                if ownership == Ownership.GONE:
                    reason = "the cgroup is no more, or another of its name"
                    gone.append(RollbackResult(entry, Outcome.GONE, "", reason))
                elif isinstance(entry.attribute, KernelFile | TrafficClass) and _is_foreign(entry, ownership):
                    foreign.append(RollbackResult(entry, Outcome.FOREIGN_WRITE, text, _foreign_reason(ownership)))
                elif not isinstance(entry.attribute, KernelFile):
                    self._extend(entry, ownership, text, foreign)
            except OSError as error:
                self._log.emit(of_entry(entry, Outcome.FAILED, str(error), before=""))
        if gone:
            self._give_up(owner, gone)
        elif foreign:
            self.back_off(owner, foreign[0].reason)
            self._give_up(owner, foreign)

    def _extend(self, entry: JournalEntry, ownership: Ownership, text: str, foreign: list[RollbackResult]) -> None:
        """Processes come and go: set those that still have the original."""
        if ownership == Ownership.FOREIGN:
            foreign.append(RollbackResult(entry, Outcome.FOREIGN_WRITE, text, _foreign_reason(ownership)))
        elif ownership == Ownership.PARTLY or text == entry.original:
            self._writer.write(entry.attribute, entry.ours[-1], {entry.original, *entry.ours}, entry.identity)

    def _give_up(self, owner: Owner, given_up: list[RollbackResult]) -> None:
        """Forget some attributes of a knob and restore its others."""
        lease = self.active.pop(owner)
        keys = {result.entry.attribute.key for result in given_up}
        rest = [entry for key, entry in lease.entries.items() if key not in keys]
        self._record([*given_up, *roll_back(rest, self._writer)])

    def release(self, owners: Collection[Owner], reason: str) -> None:
        """Restore settings that are no longer asked for; one that the kernel refuses is tried again later."""
        entries: list[JournalEntry] = []
        for owner in owners:
            entries += self.active.pop(owner).entries.values()
        known = len(self._unrestored)
        self._record(roll_back(entries, self._writer), reason)
        if len(self._unrestored) > known:
            self._retry_at = self._clock.monotonic_seconds + _RETRY_SECONDS

    def release_groups(self, used: Collection[str]) -> None:
        """Remove the agent's resource groups that no setting uses."""
        unused = [self.groups.pop(name) for name in list(self.groups) if name not in used]
        self._record(roll_back(unused, self._writer), "no setting uses the group")

    def adopt(self, entries: Iterable[JournalEntry]) -> None:
        """Restore what an earlier run left."""
        self._record(roll_back(entries, self._writer), "left by an earlier run")

    def retry(self) -> None:
        """Try again to restore what the kernel refused."""
        if self._unrestored and self._clock.monotonic_seconds >= self._retry_at:
            self._retry_at = self._clock.monotonic_seconds + _RETRY_SECONDS
            entries, self._unrestored = list(self._unrestored.values()), {}
            self._record(roll_back(entries, self._writer), "tried again")

    def release_all(self) -> None:
        """Restore everything."""
        entries = [*self._unrestored.values(), *self.groups.values()]
        for lease in self.active.values():
            entries += lease.entries.values()
        self.active.clear()
        self.groups.clear()
        self._unrestored.clear()
        self._record(roll_back(entries, self._writer), "the agent stops")

    def _record(self, results: list[RollbackResult], why: str = "") -> None:
        for result in results:
            if result.outcome == Outcome.FAILED:
                self._unrestored[result.entry.attribute.key] = result.entry
            reason = ": ".join(filter(None, (why, result.reason)))
            self._log.emit(of_entry(result.entry, result.outcome, reason, before=result.before))
        self._journal.drop(result.entry.attribute.key for result in results if result.outcome != Outcome.FAILED)


def _is_foreign(entry: JournalEntry, ownership: Ownership) -> bool:
    if ownership == Ownership.ORIGINAL:
        return entry.ours[-1] != entry.original
    return ownership == Ownership.FOREIGN


def _foreign_reason(ownership: Ownership) -> str:
    if ownership == Ownership.ORIGINAL:
        return "another program set the original back"
    return "another program wrote there"


def groups_of(setting: Setting) -> set[str]:
    """The resource groups that a setting needs."""
    if setting.knob == Knob.RESCTRL_GROUP:
        return {setting.value} - {""}
    return {setting.target} - {""} if setting.knob == Knob.RESCTRL_SCHEMATA else set()
