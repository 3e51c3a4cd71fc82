"""Carries plans out: journal first, then each write in its order; what fails halfway is put back."""

import errno
from collections.abc import Mapping, Sequence

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.events import Clocks, of_intent
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.leases import Lease, Leases, Tell, groups_of
from koordlet.enforcer.plan import Declined, WritePlan
from koordlet.enforcer.write_order import order
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import ABSENT, PRESENT, ResourceGroup
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.resctrl_groups import group_names

_FAILURE_SECONDS = 10.0
_GONE = (errno.ENOENT, errno.ENODEV)


class Applier:
    """The last step before the hands."""

    def __init__(self, knobs: Knobs, hands: KernelWriter, journal: Journal | NoJournal, holdings: Leases) -> None:
        self._knobs = knobs
        self._hands = hands
        self._journal = journal
        self._holdings = holdings

    def apply(self, plans: Sequence[WritePlan], now: Clocks, tell: Tell) -> None:
        """Write all that the plans ask for, or nothing where the journal cannot be written."""
        if not plans:
            return
        if not self._journal.hold([entry for plan in plans for entry in plan.entries]):
            for plan in plans:
                tell(
                    of_intent(
                        plan.setting, Outcome.JOURNAL_UNAVAILABLE, "the journal cannot be written; nothing changed"
                    )
                )
            return
        written: list[set[str]] = [set() for _ in plans]
        failed: dict[int, OSError] = {}
        entries = {entry.place.key: entry for plan in plans for entry in plan.entries}
        for write in order([plan.change for plan in plans]):
            if write.change in failed:
                continue
            place = write.part.place
            entry = entries[place.key]
            try:
                if write.part.by_kernel:
                    self._hands.expect(place, write.value)
                    continue
                self._hands.write(place, write.value, {entry.original, *entry.ours}, entry.identity)
                written[write.change].add(place.key)
            except OSError as error:
                failed[write.change] = error
        for number, plan in enumerate(plans):
            if number in failed:
                self._undo(plan, written[number], failed[number], now, tell)
            else:
                self._keep(plan, now, tell)

    def _keep(self, plan: WritePlan, now: Clocks, tell: Tell) -> None:
        owner: Owner = (plan.setting.target, plan.setting.knob)
        before = self._holdings.held.get(owner)
        entries = (before.entries if before else {}) | {entry.place.key: entry for entry in plan.entries}
        lease_end = now.monotonic_seconds + plan.setting.lease_seconds
        self._holdings.held[owner] = Lease(plan.setting, entries, lease_end)
        for part, text in plan.change.parts:
            if not part.by_kernel:
                key, reason = part.place.key, plan.setting.reason
                tell(of_intent(plan.setting, Outcome.SET, reason, file=key, before=text, after=part.value))

    def _undo(self, plan: WritePlan, written: set[str], error: OSError, now: Clocks, tell: Tell) -> None:
        """Forget what was not written; put back what was. A setting that stood before stands on if nothing was."""
        owner: Owner = (plan.setting.target, plan.setting.knob)
        outcome = Outcome.GONE if error.errno in _GONE else Outcome.FAILED
        tell(of_intent(plan.setting, outcome, str(error), file=getattr(error, "path", "")))
        self._holdings.leave_alone(owner, now.monotonic_seconds, f"it failed: {error}", _FAILURE_SECONDS)
        before = self._holdings.held.get(owner)
        if before is None:
            self._holdings.held[owner] = Lease(plan.setting, {}, now.monotonic_seconds)
            before = self._holdings.held[owner]
        elif not written:
            return
        before.entries |= {entry.place.key: entry for entry in plan.entries}
        self._holdings.release([owner], "it failed halfway" if written else "it was never written", now, tell)

    def make_groups(self, setting: Setting, schemata: Mapping[str, Setting], now: Clocks, tell: Tell) -> dict[str, str]:
        """Make the resource groups that a setting needs; returns who stands in for one that cannot be made.

        Raises Declined where there is neither.
        """
        aliases: dict[str, str] = {}
        for name in groups_of(setting):
            if not self._knobs.controls_resources():
                break
            try:
                group = self._knobs.group(name)
            except ValueError as error:
                raise Declined(Outcome.REFUSED, str(error)) from error
            try:
                if self._hands.read(group) != frozenset((ABSENT,)):
                    continue
                self._make(group, name, setting, now, tell)
            except OSError as error:
                stand_in = self._same_schemata(schemata.get(name)) if error.errno == errno.ENOSPC else None
                if stand_in is None:
                    raise Declined(Outcome.FAILED, str(error), group.key) from error
                aliases[name] = stand_in
        return aliases

    def _make(self, group: ResourceGroup, name: str, setting: Setting, now: Clocks, tell: Tell) -> None:
        entry = JournalEntry(
            place=group,
            identity="",
            original=ABSENT,
            ours=(PRESENT,),
            target=name,
            knob=Knob.RESCTRL_GROUP.value,
            strategy=setting.strategy,
            verdict=setting.verdict,
            lease_end=now.wall_seconds + setting.lease_seconds,
        )
        if not self._journal.hold([entry]):
            raise Declined(Outcome.JOURNAL_UNAVAILABLE, "the journal cannot be written; nothing changed", group.key)
        try:
            self._hands.write(group, PRESENT, (), "")
        except OSError:
            self._journal.drop([group.key])
            raise
        self._holdings.groups[name] = entry
        tell(of_intent(setting, Outcome.SET, setting.reason, file=group.key, before=ABSENT, after=PRESENT))

    def _same_schemata(self, wanted: Setting | None) -> str | None:
        """A group that has the wanted schemata already, when the hardware has no room for another."""
        if wanted is None:
            return None
        for name in group_names(self._knobs.resctrl):
            try:
                parts = self._knobs.parts(Knob.RESCTRL_SCHEMATA, name, wanted.value)
                if all(self._hands.read(part.place) == frozenset((part.value,)) for part in parts):
                    return name
            except (OSError, ValueError, Unsupported):
                continue
        return None
