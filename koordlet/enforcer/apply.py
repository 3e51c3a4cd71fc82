"""Application of plans: the journal first, then each write in its order; a plan that fails halfway is rolled back."""

import errno
import math
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner, Wanted
from koordlet.enforcer.events import EventLog, StepClock, of_intent
from koordlet.enforcer.journal import NOT_WRITTEN, Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry, Kind
from koordlet.enforcer.leases import Lease, Leases, groups_of
from koordlet.enforcer.plan import Declined, WritePlan
from koordlet.enforcer.write_order import order
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import ABSENT, PRESENT, ResourceGroup
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.resctrl_groups import group_names

_FAILURE_BACKOFF_SECONDS = 10.0
_UNDER_WAY_BACKOFF_SECONDS = 2.0
_GONE = (errno.ENOENT, errno.ENODEV)


class Applier:
    """Writes plans and takes their leases."""

    def __init__(
        self,
        knobs: Knobs,
        writer: Writer,
        journal: Journal | NoJournal,
        leases: Leases,
        log: EventLog,
        clock: StepClock,
    ) -> None:
        self._knobs = knobs
        self._writer = writer
        self._journal = journal
        self._leases = leases
        self._log = log
        self._clock = clock
        self.until_seconds = math.inf
        """Monotonic second from which nothing more is set: by then the guardian may be restoring."""

    def apply(self, plans: Sequence[WritePlan], between: Callable[[], None]) -> None:
        """Write all plans, or nothing where the journal cannot be written; `between` is called before each write."""
        if not plans:
            return
        if not self._journal.hold([entry for plan in plans for entry in (*plan.entries, *plan.records)]):
            for plan in plans:
                self._log.emit(of_intent(plan.setting, Outcome.JOURNAL_UNAVAILABLE, NOT_WRITTEN))
            return
        written: list[set[str]] = [set() for _ in plans]
        failed: dict[int, OSError] = {}
        entries = {entry.attribute.key: entry for plan in plans for entry in plan.entries}
        for write in order([plan.change for plan in plans]):
            between()
            if write.change in failed:
                continue
            attribute = write.assignment.attribute
            entry = entries[attribute.key]
            try:
                if time.monotonic() >= self.until_seconds:
                    raise TimeoutError(errno.ETIMEDOUT, "the step outlasted the lease of actions")
                if write.assignment.by_kernel:
                    self._writer.expect(attribute, write.value)
                    continue
                self._writer.write(attribute, write.value, {entry.original, *entry.ours}, entry.identity)
                written[write.change].add(attribute.key)
            except OSError as error:
                failed[write.change] = error
        for number, plan in enumerate(plans):
            if number in failed:
                self._undo(plan, written[number], failed[number])
            else:
                self._take_lease(plan)

    def _take_lease(self, plan: WritePlan) -> None:
        wanted, setting = plan.wanted, plan.setting
        owner: Owner = (setting.target, setting.knob)
        now = self._clock.monotonic_seconds
        before = self._leases.active.get(owner)
        beneath = [(base.target, base.knob) for base in wanted.bases if (base.target, base.knob) != owner]
        entries = self._leases.entries_of([*beneath, owner])
        for other in beneath:
            self._leases.active.pop(other, None)
        entries |= {entry.attribute.key: entry for entry in (*plan.entries, *plan.records)}
        continues = before is not None and before.setting.protocol_state == setting.protocol_state
        since = before.since_seconds if before is not None and continues else now
        end_seconds = now + setting.lease_seconds
        self._leases.active[owner] = Lease(setting, entries, end_seconds, wanted.bases, since_seconds=since)
        for assignment, text in plan.change.assignments:
            if not assignment.by_kernel:
                key, reason = assignment.attribute.key, plan.setting.reason
                event = of_intent(plan.setting, Outcome.SET, reason, file=key, before=text, after=assignment.value)
                self._log.emit(event)
        if not plan.change.assignments:
            self._log.emit(of_intent(setting, Outcome.UNCHANGED, setting.reason))
        self._leases.release_attributes(owner, plan.stale, "no longer wanted")

    def _undo(self, plan: WritePlan, written: set[str], error: OSError) -> None:
        """Restore what was written. A lease that the setting had before stays in effect if nothing was."""
        owner: Owner = (plan.setting.target, plan.setting.knob)
        outcome = Outcome.GONE if error.errno in _GONE else Outcome.FAILED
        self._log.emit(of_intent(plan.setting, outcome, str(error), file=getattr(error, "path", "")))
        is_under_way = error.errno == errno.EAGAIN  # the kernel reclaims, which goes on with the next attempt
        seconds = _UNDER_WAY_BACKOFF_SECONDS if is_under_way else _FAILURE_BACKOFF_SECONDS
        self._leases.back_off(owner, f"it failed: {error}", seconds)
        before = self._leases.active.get(owner)
        if before is None:
            self._leases.active[owner] = Lease(plan.setting, {}, self._clock.monotonic_seconds)
            before = self._leases.active[owner]
        elif not written:
            self._journal.hold(list(before.entries.values()))
            return
        before.entries |= {entry.attribute.key: entry for entry in plan.entries}
        reason = "it failed halfway" if written else "it was never written"
        if plan.wanted.bases:
            before.setting, before.bases = plan.setting, plan.wanted.bases
            self._leases.end_actions([owner], reason)
        else:
            self._leases.release([owner], reason)

    def make_groups(self, wanted: Wanted, schemata: Mapping[str, Setting]) -> dict[str, str]:
        """Make the resource groups that a setting needs; return the group in the stead of each that cannot be made.

        Raises Declined where there is neither.
        """
        aliases: dict[str, str] = {}
        layers = (wanted.setting, *wanted.bases)
        for name, setting in ((name, one) for one in layers for name in groups_of(one)):
            if not self._knobs.has_resctrl():
                break
            try:
                group = self._knobs.group(name)
            except ValueError as error:
                raise Declined(Outcome.REFUSED, str(error)) from error
            try:
                if self._writer.read(group) != frozenset((ABSENT,)):
                    self._keep_group(name, setting)
                    continue
                self._make(group, name, setting)
            except OSError as error:
                alias = self._group_of_schemata(schemata.get(name)) if error.errno == errno.ENOSPC else None
                if alias is None:
                    raise Declined(Outcome.FAILED, str(error), group.key) from error
                aliases[name] = alias
        return aliases

    def _keep_group(self, name: str, setting: Setting) -> None:
        """A group that an action made stays when protocol state uses it too."""
        entry = self._leases.groups.get(name)
        if entry is not None and entry.kind is Kind.ACTION and setting.protocol_state:
            kept = msgspec.structs.replace(entry, kind=Kind.PROTOCOL)
            if self._journal.hold([kept]):
                self._leases.groups[name] = kept

    def _make(self, group: ResourceGroup, name: str, setting: Setting) -> None:
        entry = JournalEntry(
            attribute=group,
            identity="",
            original=ABSENT,
            ours=(PRESENT,),
            target=name,
            knob=Knob.RESCTRL_GROUP.value,
            strategy=setting.strategy,
            verdict=setting.verdict,
            lease_end=self._clock.wall_seconds + setting.lease_seconds,
            kind=Kind.PROTOCOL if setting.protocol_state else Kind.ACTION,
        )
        if not self._journal.hold([entry]):
            raise Declined(Outcome.JOURNAL_UNAVAILABLE, NOT_WRITTEN, group.key)
        try:
            self._writer.write(group, PRESENT, (), "")
        except OSError:
            self._journal.drop([group.key])
            raise
        self._leases.groups[name] = entry
        self._log.emit(of_intent(setting, Outcome.SET, setting.reason, file=group.key, before=ABSENT, after=PRESENT))

    def _group_of_schemata(self, schemata: Setting | None) -> str | None:
        """A group that has these schemata already, when the hardware has no room for another."""
        if schemata is None:
            return None
        for name in group_names(self._knobs.resctrl):
            try:
                found = self._knobs.assignments(Knob.RESCTRL_SCHEMATA, name, schemata.value)
                if all(self._writer.read(one.attribute) == frozenset((one.value,)) for one in found):
                    return name
            except (OSError, ValueError, Unsupported):
                continue
        return None
