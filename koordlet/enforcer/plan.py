"""Plans: the writes and journal entries that a setting needs, found by reading the host and writing nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Wanted
from koordlet.enforcer.events import StepClock
from koordlet.enforcer.journal_format import JournalEntry, Kind, ProtocolState
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.write_order import KnobChange, interim
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.direction import direction
from koordlet.host.knobs.knobs import Assignment, CgroupGone, Knobs

Known = Mapping[str, JournalEntry]
"""Entries of the leases that a plan changes, by the attribute's key."""
OriginalOf = Callable[[str], str | None]
"""From the text found at a cgroup's CPU list to the text that it would have had; None: the one found."""


class Declined(Exception):
    """A setting that is not applied, with outcome and reason."""

    def __init__(self, outcome: Outcome, reason: str, file: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.file = file


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Writes of one setting; none where `change.assignments` is empty."""

    wanted: Wanted
    change: KnobChange
    entries: tuple[JournalEntry, ...]
    """In the order of the assignments."""
    records: tuple[JournalEntry, ...] = ()
    """Entries that change while their attributes hold the right text already."""
    stale: tuple[str, ...] = ()
    """Keys of protocol state that is asked for no more at these attributes."""
    found: tuple[Assignment, ...] = ()
    """Attributes that hold the right text already; empty where some do not, or where processes have them."""

    @property
    def setting(self) -> Setting:
        """The setting to be in effect."""
        return self.wanted.setting

    @property
    def restores_originals(self) -> bool:
        """Return whether everything would be as it was found."""
        if self.wanted.bases or self.records:
            return False
        return bool(self.entries) and all(entry.original == entry.ours[-1] for entry in self.entries)


@dataclass(frozen=True, slots=True)
class _Part:
    """An attribute's text, the setting that it is of, and the protocol state there."""

    assignment: Assignment
    setting: Setting
    protocol: ProtocolState | None


class Planner:
    """Makes plans for one host."""

    def __init__(self, knobs: Knobs, writer: Writer, clock: StepClock) -> None:
        self._knobs = knobs
        self._writer = writer
        self._clock = clock

    def plan(
        self,
        wanted: Wanted,
        known: Known,
        protection: ProtectedCgroups,
        aliases: Mapping[str, str],
        original_of: OriginalOf,
    ) -> WritePlan:
        """Raises Declined. `aliases` maps a resource group that cannot be made to the one in its stead."""
        setting = wanted.setting
        parts = self._parts(wanted, aliases)
        found = [(part, self._text(part.assignment, known)) for part in parts]
        originals = [
            (part.assignment, _original(part.assignment, text, known))
            for part, text in found
            if part.setting is setting
        ]
        forbidden = protection.forbids(
            setting.knob,
            setting.target,
            direction(setting.knob, originals),
            strategy=setting.strategy,
            protocol_state=setting.protocol_state,
        )
        if forbidden:
            raise Declined(Outcome.PROTECTED, forbidden, parts[0].assignment.attribute.key)
        present = [(part, text) for part, text in found if text is not None]
        differing = [
            (part, text) for part, text in present if part.assignment.by_kernel or text != part.assignment.value
        ]
        if all(part.assignment.by_kernel for part, _ in differing):
            differing = []
        texts = tuple((part.assignment, text) for part, text in differing)
        entries = tuple(self._entry(part, text, known, original_of) for part, text in differing)
        written = {entry.attribute.key for entry in entries}
        same = [(part, text) for part, text in present if part.assignment.attribute.key not in written]
        records = [entry for part, text in same if (entry := self._record(part, text, known, original_of))]
        planned = {part.assignment.attribute.key for part in parts}
        records += self._left_below(wanted, planned, known, aliases)
        stale = tuple(key for key, entry in known.items() if key not in planned and entry.kind is Kind.PROTOCOL)
        change = KnobChange(setting.knob, setting.target, texts, direction(setting.knob, texts))
        is_found = len(same) == len(parts) and all(
            isinstance(part.assignment.attribute, KernelFile) for part, _ in same
        )
        return WritePlan(
            wanted,
            change,
            entries,
            tuple(records),
            () if setting.protocol_state else stale,
            tuple(part.assignment for part, _ in same) if is_found else (),
        )

    def _parts(self, wanted: Wanted, aliases: Mapping[str, str]) -> list[_Part]:
        """Attributes of the setting, and those that only the protocol state of the same knob sets."""
        setting = wanted.setting
        below: dict[str, tuple[Assignment, Setting]] = {}
        for base in wanted.bases:
            below |= {one.attribute.key: (one, base) for one in self._of_base(base, aliases)}
        parts = []
        for one in self._assignments(setting, aliases):
            own = _state(one, setting) if setting.protocol_state and not one.by_kernel else None
            state = below.pop(one.attribute.key, None)
            parts.append(_Part(one, setting, _state(*state) if state else own))
        parts += [_Part(one, base, _state(one, base)) for one, base in below.values() if base.knob == setting.knob]
        return parts

    def _of_base(self, base: Setting, aliases: Mapping[str, str]) -> tuple[Assignment, ...]:
        try:
            return tuple(one for one in self._assignments(base, aliases) if not one.by_kernel)
        except Declined:
            return ()

    def _left_below(
        self, wanted: Wanted, planned: set[str], known: Known, aliases: Mapping[str, str]
    ) -> list[JournalEntry]:
        """Entries below an action whose protocol state changed or ended: the weight of an idle cgroup."""
        below = {one.attribute.key: _state(one, base) for base in wanted.bases for one in self._of_base(base, aliases)}
        changed = []
        for key, entry in known.items():
            if key not in planned and entry.kind is Kind.ACTION and entry.protocol != below.get(key):
                changed.append(_with_state(entry, below.get(key)))
        return changed

    def _assignments(self, setting: Setting, aliases: Mapping[str, str]) -> tuple[Assignment, ...]:
        target, value = setting.target, setting.value
        if setting.knob == Knob.RESCTRL_SCHEMATA:
            target = aliases.get(target, target)
        elif setting.knob == Knob.RESCTRL_GROUP:
            value = aliases.get(value, value)
        try:
            return self._knobs.assignments(setting.knob, target, value)
        except Unsupported as lack:
            raise Declined(
                Outcome.UNSUPPORTED, f"{lack.reason}; {lack.remedy}" if lack.remedy else lack.reason
            ) from lack
        except CgroupGone:
            raise Declined(Outcome.GONE, "there is no such cgroup") from None
        except ValueError as error:
            raise Declined(Outcome.REFUSED, str(error)) from error
        except OSError as error:
            raise Declined(Outcome.FAILED, str(error)) from error

    def _text(self, assignment: Assignment, known: Known) -> str | None:
        """Present text of an attribute; None where no process is there to have it."""
        attribute = assignment.attribute
        try:
            texts = self._writer.read(attribute)
        except OSError as error:
            raise Declined(Outcome.FAILED, str(error), attribute.key) from error
        if texts is None:
            raise Declined(Outcome.GONE, "it is not there any more", attribute.key)
        entry = known.get(attribute.key)
        if entry is not None and not isinstance(attribute, KernelFile):
            texts -= {entry.original} if len(texts) > 1 else frozenset()
        if len(texts) > 1:
            shown = ", ".join(sorted(texts))
            reason = f"its processes differ ({shown}): another program sets them apart"
            raise Declined(Outcome.REFUSED, reason, attribute.key)
        return next(iter(texts), None)

    def _record(self, part: _Part, text: str, known: Known, original_of: OriginalOf) -> JournalEntry | None:
        """Entry of an attribute that holds the right text: None where the journal says all of it already."""
        before = known.get(part.assignment.attribute.key)
        if before is None:
            born = original_of(text)
            return None if born is None or born == text else self._entry(part, text, known, original_of)
        as_it_is = (before.kind, before.protocol, before.knob)
        kind = Kind.PROTOCOL if part.setting.protocol_state else Kind.ACTION
        if as_it_is == (kind, part.protocol, part.setting.knob.value):
            return None
        return self._entry(part, text, known, original_of)

    def _entry(self, part: _Part, text: str, known: Known, original_of: OriginalOf) -> JournalEntry:
        assignment, setting = part.assignment, part.setting
        attribute = assignment.attribute
        identity = self._writer.identity(attribute)
        if identity is None:
            raise Declined(Outcome.GONE, "it is not there any more", attribute.key)
        before = known.get(attribute.key)
        if before and before.identity == identity:
            original = before.original
        else:
            born = original_of(text)
            original = text if born is None else born
        from_original = Assignment(attribute, original)
        passing = (text if before else "", interim(assignment, text), interim(from_original, assignment.value))
        ours = (*assignment.also, *filter(None, passing), assignment.value)
        return JournalEntry(
            attribute=attribute,
            identity=identity,
            original=original,
            ours=tuple(dict.fromkeys(ours)),
            by_kernel=assignment.by_kernel,
            target=setting.target,
            knob=setting.knob.value,
            strategy=setting.strategy,
            verdict=setting.verdict,
            lease_end=self._clock.wall_seconds + setting.lease_seconds,
            value=setting.value,
            kind=Kind.PROTOCOL if setting.protocol_state else Kind.ACTION,
            protocol=part.protocol,
        )


def _state(assignment: Assignment, setting: Setting) -> ProtocolState:
    return ProtocolState(text=assignment.value, knob=setting.knob.value, value=setting.value, strategy=setting.strategy)


def _with_state(entry: JournalEntry, state: ProtocolState | None) -> JournalEntry:
    return msgspec.structs.replace(entry, protocol=state)


def _original(assignment: Assignment, text: str | None, known: Known) -> str:
    entry = known.get(assignment.attribute.key)
    return entry.original if entry else assignment.value if text is None else text
