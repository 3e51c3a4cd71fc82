"""Plans: the writes and journal entries that a setting needs, found by reading the host and writing nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import StepClock
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.leases import Lease
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.write_order import KnobChange, interim
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.direction import direction
from koordlet.host.knobs.knobs import Assignment, CgroupGone, Knobs


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

    setting: Setting
    change: KnobChange
    entries: tuple[JournalEntry, ...]
    """In the order of the assignments."""

    @property
    def restores_originals(self) -> bool:
        """Return whether everything would be as it was found."""
        return bool(self.entries) and all(entry.original == entry.ours[-1] for entry in self.entries)


class Planner:
    """Makes plans for one host."""

    def __init__(self, knobs: Knobs, writer: Writer, clock: StepClock) -> None:
        self._knobs = knobs
        self._writer = writer
        self._clock = clock

    def plan(
        self, setting: Setting, lease: Lease | None, protection: ProtectedCgroups, aliases: Mapping[str, str]
    ) -> WritePlan:
        """Raises Declined. `aliases` maps a resource group that cannot be made to the one in its stead."""
        assignments = self._assignments(setting, aliases)
        found = [(one, self._text(one, lease)) for one in assignments]
        originals = [(one, _original(one, text, lease)) for one, text in found]
        forbidden = protection.forbids(setting.knob, setting.target, direction(setting.knob, originals))
        if forbidden:
            raise Declined(Outcome.PROTECTED, forbidden, assignments[0].attribute.key)
        known = [(one, text) for one, text in found if text is not None]
        differing = tuple((one, text) for one, text in known if one.by_kernel or text != one.value)
        if all(one.by_kernel for one, _ in differing):
            differing = ()
        change = KnobChange(setting.knob, setting.target, differing, direction(setting.knob, differing))
        return WritePlan(setting, change, tuple(self._entry(setting, one, text, lease) for one, text in differing))

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

    def _text(self, assignment: Assignment, lease: Lease | None) -> str | None:
        """Present text of an attribute; None where no process is there to have it."""
        attribute = assignment.attribute
        try:
            texts = self._writer.read(attribute)
        except OSError as error:
            raise Declined(Outcome.FAILED, str(error), attribute.key) from error
        if texts is None:
            raise Declined(Outcome.GONE, "it is not there any more", attribute.key)
        entry = lease.entries.get(attribute.key) if lease else None
        if entry is not None and not isinstance(attribute, KernelFile):
            texts -= {entry.original} if len(texts) > 1 else frozenset()
        if len(texts) > 1:
            shown = ", ".join(sorted(texts))
            reason = f"its processes differ ({shown}): another program sets them apart"
            raise Declined(Outcome.REFUSED, reason, attribute.key)
        return next(iter(texts), None)

    def _entry(self, setting: Setting, assignment: Assignment, text: str, lease: Lease | None) -> JournalEntry:
        attribute = assignment.attribute
        identity = self._writer.identity(attribute)
        if identity is None:
            raise Declined(Outcome.GONE, "it is not there any more", attribute.key)
        known = lease.entries.get(attribute.key) if lease else None
        original = known.original if known and known.identity == identity else text
        from_original = Assignment(attribute, original)
        passing = (text if known else "", interim(assignment, text), interim(from_original, assignment.value))
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
        )


def _original(assignment: Assignment, text: str | None, lease: Lease | None) -> str:
    entry = lease.entries.get(assignment.attribute.key) if lease else None
    return entry.original if entry else assignment.value if text is None else text
