"""Leases: settings in effect, resource groups that the agent made, and attributes that could not be restored yet.

An action ends to what lies below it: the protocol state of the attribute, which then stays in effect, or the original.
Protocol state itself ends to the original.
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import is_

from api.intents import Knob, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.events import EventLog, StepClock, of_entry
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry, Kind
from koordlet.enforcer.originals.rollback import Ownership, RollbackResult, inspect, roll_back
from koordlet.enforcer.originals.set_back import SetAgainTimes, found_set_back, is_set_back, set_again
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import Attribute, KernelFile, ResourceGroup, TrafficClass
from koordlet.host.knobs.knobs import Assignment

_VERIFY_ALL_UP_TO = 256
"""Actions verified in every step; of more, a part in each."""
_VERIFY_ALL_STATE_UP_TO = 32
"""Likewise of protocol state, which a full node has of each batch pod, and which few programs write besides."""
_VERIFY_STEPS = 5
_VERIFY_STATE_STEPS = 15
_RETRY_SECONDS = 10.0
LEFT_BY_EARLIER_RUN = "left by an earlier run"


@dataclass(slots=True)
class Lease:
    """A setting in effect."""

    setting: Setting
    entries: dict[str, JournalEntry]
    """By the attribute's key; empty where the value was there already when it was first asked for."""
    end_seconds: float
    """On the monotonic clock."""
    bases: tuple[Setting, ...] = ()
    """Protocol state below it, where it is an action."""
    is_inherited: bool = False
    """Left by an earlier run and not asked for by this one so far."""
    since_seconds: float = -math.inf
    """Monotonic second at which it took effect; that of the action, where it lies over protocol state."""
    granted_by: object = None
    """The rules of protection that allowed it."""
    found: tuple[Assignment, ...] = ()
    """What was there already, of protocol state without entries: nothing to restore, but to be asked for again once
    it is no longer there."""

    @property
    def layers(self) -> tuple[Setting, ...]:
        """The setting and the protocol state below it."""
        return (self.setting, *self.bases)


class ChangeOfLeases:
    """Notices whether leases came or went since it was asked last: each change of a value makes another object."""

    def __init__(self) -> None:
        self._known: list[Lease] | None = None

    def since_last(self, active: Mapping[Owner, Lease]) -> bool:
        """Return whether the leases are others than at the last call; True at the first."""
        known = self._known
        if known is not None and len(known) == len(active) and all(map(is_, known, active.values())):
            return False
        self._known = list(active.values())
        return True


@dataclass(frozen=True, slots=True)
class _Undoing:
    """An attribute on its way back: `to` is the entry whose original is to be there, `kept` the entry that remains."""

    to: JournalEntry
    kept: JournalEntry | None = None


@dataclass(slots=True)
class _Journalled:
    """Changes of the journal that a round of restoring leads to."""

    drops: list[str] = field(default_factory=list)
    holds: list[JournalEntry] = field(default_factory=list)


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
        self.until_seconds = math.inf
        """Monotonic second from which nothing is set again: by then the guardian may be restoring."""
        self._unrestored: dict[str, _Undoing] = {}
        self._retry_at = -math.inf
        self._backoffs: dict[Owner, tuple[float, str]] = {}
        """Monotonic second until which a knob is not written, with the reason."""
        self._set_again_times = SetAgainTimes()
        self._steps = 0
        self._looks = 0
        """Looks between steps."""
        self._change = ChangeOfLeases()
        self._verified: tuple[list[Owner], list[Owner]] = ([], [])
        """Owners of actions, and of protocol state where that is verified in turns."""

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

    def entries_of(self, owners: Collection[Owner]) -> dict[str, JournalEntry]:
        """Entries of some leases, by the attribute's key."""
        leases = (self.active[owner] for owner in owners if owner in self.active)
        return {key: entry for lease in leases for key, entry in lease.entries.items()}

    def verify(self) -> None:
        """Check that the leases are in effect; of many, a fifth in each step, of protocol state a fifteenth."""
        now = self._clock.monotonic_seconds
        self._backoffs = {owner: backoff for owner, backoff in self._backoffs.items() if backoff[0] > now}
        owners = self._turn(self._steps)
        states = self._verified[1][self._steps % _VERIFY_STATE_STEPS :: _VERIFY_STATE_STEPS]
        self._steps += 1
        for owner in (*owners, *states):
            self.verify_one(owner)

    def _turn(self, number: int) -> list[Owner]:
        """Owners of actions whose turn it is; all of them, unless they are many."""
        if self._change.since_last(self.active):
            self._verified = self._by_turns()
        owners = self._verified[0]
        return owners[number % _VERIFY_STEPS :: _VERIFY_STEPS] if len(owners) > _VERIFY_ALL_UP_TO else owners

    def _by_turns(self) -> tuple[list[Owner], list[Owner]]:
        states = [owner for owner, lease in self.active.items() if lease.setting.protocol_state]
        if sum(len(lease.entries) + len(lease.found) for lease in map(self.active.__getitem__, states)) <= (
            _VERIFY_ALL_STATE_UP_TO
        ):
            return list(self.active), []
        return [owner for owner, lease in self.active.items() if not lease.setting.protocol_state], states

    def verify_one(self, owner: Owner) -> None:
        """Check one lease; give it up if its cgroup is gone or another program wrote to it."""
        lease = self.active[owner]
        if not all(map(self._is_there, lease.found)):
            del self.active[owner]
            return
        foreign: list[RollbackResult] = []
        gone: list[RollbackResult] = []
        set_back: list[tuple[JournalEntry, str]] = []
        for entry in lease.entries.values():
            if entry.by_kernel:
                continue
            try:
                if lease.setting.protocol_state and self._is_as_left(entry):
                    continue
                ownership, text = inspect(entry, self._writer)
                if ownership == Ownership.GONE:
                    reason = "the cgroup is no more, or another of its name"
                    gone.append(RollbackResult(entry, Outcome.GONE, "", reason))
                elif is_set_back(entry, ownership):
                    set_back.append((entry, text))
                elif isinstance(entry.attribute, KernelFile | TrafficClass) and _is_foreign(entry, ownership):
                    foreign.append(RollbackResult(entry, Outcome.FOREIGN_WRITE, text, _foreign_reason(ownership)))
                elif not isinstance(entry.attribute, KernelFile):
                    self._extend(entry, ownership, text, foreign)
            except OSError as error:
                self._log.emit(of_entry(entry, Outcome.FAILED, str(error), before=""))
        if gone:
            self._give_up(owner, gone)
        else:
            self._set_again(owner, set_back, foreign)

    def keep_actions(self) -> None:
        """Set actions again that systemd set back, and look at nothing else; of many, at a fifth each time."""
        owners = self._turn(self._looks)
        self._looks += 1
        for owner in owners:
            lease = self.active[owner]
            if not lease.setting.protocol_state:
                self._set_again(owner, found_set_back(lease.entries.values(), self._writer), ())

    def _set_again(
        self, owner: Owner, set_back: Collection[tuple[JournalEntry, str]], foreign: Iterable[RollbackResult]
    ) -> None:
        """Set attributes of a lease again; back off from it where there are foreign writes, or set-backs like these."""
        now = self._clock.monotonic_seconds
        if foreign := [*foreign, *self._set_again_times.contested(set_back, now)]:
            self.back_off(owner, foreign[0].reason)
            self._give_up(owner, foreign)
            return
        for entry, text in set_back:
            if time.monotonic() >= self.until_seconds:
                return
            event = set_again(entry, text, self._writer)
            if event.outcome is Outcome.SET_AGAIN:
                self._set_again_times.note(entry.attribute.key, now)
            self._log.emit(event)

    def _is_as_left(self, entry: JournalEntry) -> bool:
        """Whether a file has our text: of whichever cgroup, it is in effect, and a write will see which one it is."""
        return isinstance(entry.attribute, KernelFile) and self._has(entry.attribute, entry.ours[-1])

    def _has(self, attribute: Attribute, text: str) -> bool:
        return self._writer.read(attribute) == frozenset((text,))

    def _is_there(self, found: Assignment) -> bool:
        try:
            return self._has(found.attribute, found.value)
        except OSError:
            return False

    def take_found(self, setting: Setting, found: Iterable[Assignment]) -> None:
        """Take a lease of protocol state that is in effect already."""
        self.active[setting.target, setting.knob] = Lease(setting, {}, math.inf, found=tuple(found))

    def _extend(self, entry: JournalEntry, ownership: Ownership, text: str, foreign: list[RollbackResult]) -> None:
        """Processes come and go: set those that still have the original, or what the protocol gives them."""
        if ownership == Ownership.FOREIGN:
            foreign.append(RollbackResult(entry, Outcome.FOREIGN_WRITE, text, _foreign_reason(ownership)))
        elif ownership == Ownership.PARTLY or text == entry.original or (entry.protocol and "," in text):
            self._writer.write(entry.attribute, entry.ours[-1], {entry.original, *entry.ours}, entry.identity)

    def _give_up(self, owner: Owner, given_up: list[RollbackResult]) -> None:
        """Forget some attributes of a knob and restore its others."""
        lease = self.active.pop(owner)
        keys = {result.entry.attribute.key for result in given_up}
        rest = [entry for key, entry in lease.entries.items() if key not in keys]
        self._record(given_up)
        self._undo((_Undoing(entry) for entry in rest), "")

    def release(self, owners: Collection[Owner], reason: str) -> None:
        """Restore settings that are no longer asked for; one that the kernel refuses is tried again later."""
        entries = [entry for owner in owners for entry in self.active.pop(owner).entries.values()]
        known = len(self._unrestored)
        self._undo(map(_Undoing, entries), reason)
        if len(self._unrestored) > known:
            self._retry_at = self._clock.monotonic_seconds + _RETRY_SECONDS

    def release_attributes(self, owner: Owner, keys: Collection[str], reason: str) -> None:
        """Restore some attributes of a setting that stays in effect elsewhere."""
        lease = self.active.get(owner)
        if lease is not None:
            entries = [lease.entries.pop(key) for key in keys if key in lease.entries]
            self._undo(map(_Undoing, entries), reason)

    def end_actions(self, owners: Collection[Owner], reason: str) -> None:
        """End actions: the protocol state below them is put back and becomes a lease, all else is restored."""
        ended = [self.active.pop(owner) for owner in owners]
        undoings = []
        for lease in ended:
            for base in lease.bases:
                below = Lease(base, {}, math.inf, is_inherited=lease.is_inherited)
                self.active.setdefault((base.target, base.knob), below)
            for key, entry in lease.entries.items():
                if entry.kind is Kind.PROTOCOL:
                    self._keep(key, entry)
                else:
                    undoings.append(_Undoing(entry.without_action(), entry.as_protocol_state()))
        self._undo(undoings, reason)

    def _keep(self, key: str, entry: JournalEntry) -> None:
        """Make an entry of protocol state part of its lease, if that is in effect."""
        lease = self.active.get((entry.target, _knob(entry)))
        if lease is not None:
            lease.entries[key] = entry

    def release_groups(self, used: Collection[str]) -> None:
        """Remove the agent's resource groups that no setting uses."""
        unused = [self.groups.pop(name) for name in list(self.groups) if name not in used]
        self._undo(map(_Undoing, unused), "no setting uses the group")

    def adopt(self, entries: Iterable[JournalEntry], handover_until: float | None = None) -> None:
        """Take over what an earlier run left: protocol state stays, actions until their deadline, or are restored."""
        undoings = []
        for entry in entries:
            if entry.kind is Kind.PROTOCOL and self._holds_original(entry):
                self._journal.drop([entry.attribute.key])  # the run ended before the write that this announced
                continue
            is_halfway = entry.protocol is not None and not self._holds_original(entry.without_action())
            if entry.kind is Kind.PROTOCOL and is_halfway:
                # The run ended amid a change of several writes, or from an action to protocol state.
                self._inherit(entry, math.inf)
                undoings.append(_Undoing(entry.without_action(), entry.as_protocol_state()))
                continue
            is_action = entry.kind is Kind.ACTION
            if is_action and handover_until is None:
                kept = entry.as_protocol_state()
                if kept is not None:
                    self._inherit(kept, math.inf)
                undoings.append(_Undoing(entry.without_action(), kept))
            else:
                self._inherit(entry, math.inf if handover_until is None or not is_action else handover_until)
        self._undo(undoings, LEFT_BY_EARLIER_RUN)

    def _holds_original(self, entry: JournalEntry) -> bool:
        try:
            return inspect(entry, self._writer)[0] is Ownership.ORIGINAL
        except OSError:
            return False

    def _inherit(self, entry: JournalEntry, end_seconds: float) -> None:
        if isinstance(entry.attribute, ResourceGroup):
            self.groups[entry.target] = entry
            return
        owner = (entry.target, _knob(entry))
        setting = _setting(entry)
        lease = self.active.get(owner)
        if lease is None:
            lease = self.active[owner] = Lease(setting, {}, end_seconds, is_inherited=True)
        elif not setting.protocol_state and lease.setting.protocol_state:
            lease.bases = (*lease.bases, lease.setting)
            lease.setting, lease.end_seconds = setting, end_seconds
        lease.entries[entry.attribute.key] = entry
        state = entry.protocol
        if entry.kind is Kind.ACTION and state is not None:
            below = Setting(
                strategy=state.strategy,
                target=entry.target,
                knob=Knob(state.knob),
                value=state.value,
                reason=LEFT_BY_EARLIER_RUN,
                protocol_state=True,
            )
            lease.bases = tuple(dict.fromkeys((*lease.bases, below)))

    def restore(self, entries: Iterable[JournalEntry]) -> None:
        """Restore attributes that belong to no lease."""
        self._undo(map(_Undoing, entries), "")

    def retry(self) -> None:
        """Try again to restore what the kernel refused."""
        if self._unrestored and self._clock.monotonic_seconds >= self._retry_at:
            self._retry_at = self._clock.monotonic_seconds + _RETRY_SECONDS
            undoings, self._unrestored = list(self._unrestored.values()), {}
            self._undo(undoings, "tried again")

    @property
    def has_unrestored(self) -> bool:
        """True while something that ended is still in effect, because the kernel refused the original."""
        return bool(self._unrestored)

    def end_all_actions(self, reason: str) -> None:
        """End every action; protocol state stays."""
        undoings, self._unrestored = list(self._unrestored.values()), {}
        self._undo(undoings, reason)
        self.end_actions([owner for owner, lease in self.active.items() if not lease.setting.protocol_state], reason)
        made = [name for name, entry in self.groups.items() if entry.kind is Kind.ACTION]
        self._undo([_Undoing(self.groups.pop(name)) for name in made], reason)

    def release_all(self, reason: str) -> None:
        """Restore everything, protocol state included."""
        undoings = [_Undoing(_deepest(undoing)) for undoing in self._unrestored.values()]
        undoings += map(_Undoing, self.groups.values())
        undoings += [_Undoing(entry) for lease in self.active.values() for entry in lease.entries.values()]
        self.active.clear()
        self.groups.clear()
        self._unrestored.clear()
        self._undo(undoings, reason)

    def _undo(self, undoings: Iterable[_Undoing], reason: str) -> None:
        by_key = {undoing.to.attribute.key: undoing for undoing in undoings}
        results = roll_back([undoing.to for undoing in by_key.values()], self._writer)
        self._record(results, reason, by_key)

    def _record(
        self, results: Iterable[RollbackResult], why: str = "", undoings: Mapping[str, _Undoing] | None = None
    ) -> None:
        changes = _Journalled()
        for result in results:
            key = result.entry.attribute.key
            undoing = (undoings or {}).get(key) or _Undoing(result.entry)
            is_there = result.outcome in (Outcome.RESTORED, Outcome.UNCHANGED)
            if result.outcome == Outcome.FAILED:
                self._unrestored[key] = undoing
            elif undoing.kept is not None and is_there:
                changes.holds.append(undoing.kept)
                self._keep(key, undoing.kept)
            else:
                changes.drops.append(key)
            reason = ": ".join(filter(None, (why, result.reason)))
            self._log.emit(of_entry(result.entry, result.outcome, reason, before=result.before))
        if changes.holds:
            self._journal.hold(changes.holds)
        self._journal.drop(changes.drops)


def _deepest(undoing: _Undoing) -> JournalEntry:
    """The entry with the original of before everything."""
    return undoing.kept or undoing.to


def _knob(entry: JournalEntry) -> Knob:
    """The knob of an entry; one of another version's journal has no owner, as a sysctl has none."""
    return Knob(entry.knob) if entry.knob in Knob.__members__.values() else Knob.SYSCTL


def _setting(entry: JournalEntry) -> Setting:
    return Setting(
        strategy=entry.strategy,
        target=entry.target,
        knob=_knob(entry),
        value=entry.value,
        reason=LEFT_BY_EARLIER_RUN,
        verdict=entry.verdict,
        protocol_state=entry.kind is Kind.PROTOCOL,
    )


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
