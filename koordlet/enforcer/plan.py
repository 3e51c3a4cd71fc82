"""From a wish to what would have to be written for it: looks, and writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.leases import Lease
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.write_order import KnobChange, interim
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.direction import direction
from koordlet.host.knobs.knobs import Assignment, CgroupGone, Knobs


class Declined(Exception):
    """A wish that is not followed, and why."""

    def __init__(self, outcome: Outcome, reason: str, file: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.file = file


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What to do for one wish; nothing where `change.parts` is empty."""

    setting: Setting
    change: KnobChange
    entries: tuple[JournalEntry, ...]
    """In the order of the parts."""

    @property
    def wants_originals(self) -> bool:
        """Whether everything is to be as it was found."""
        return bool(self.entries) and all(entry.original == entry.ours[-1] for entry in self.entries)


class Planner:
    """Looks at a host through its hands."""

    def __init__(self, knobs: Knobs, hands: KernelWriter) -> None:
        self._knobs = knobs
        self._hands = hands

    def plan(
        self,
        setting: Setting,
        held: Lease | None,
        protection: ProtectedCgroups,
        now: Clocks,
        aliases: Mapping[str, str],
    ) -> WritePlan:
        """Raises Declined. `aliases` names the group that stands in for a resource group that cannot be made."""
        parts = self._parts(setting, aliases)
        found = [(part, self._text(part, held)) for part in parts]
        before = [(part, _original(part, text, held)) for part, text in found]
        forbidden = protection.forbids(setting.knob, setting.target, direction(setting.knob, before))
        if forbidden:
            raise Declined(Outcome.PROTECTED, forbidden, parts[0].place.key)
        known = [(part, text) for part, text in found if text is not None]
        differing = tuple((part, text) for part, text in known if part.by_kernel or text != part.value)
        if all(part.by_kernel for part, _ in differing):
            differing = ()
        change = KnobChange(setting.knob, setting.target, differing, direction(setting.knob, differing))
        return WritePlan(
            setting, change, tuple(self._entry(setting, part, text, held, now) for part, text in differing)
        )

    def _parts(self, setting: Setting, aliases: Mapping[str, str]) -> tuple[Assignment, ...]:
        target, value = setting.target, setting.value
        if setting.knob == Knob.RESCTRL_SCHEMATA:
            target = aliases.get(target, target)
        elif setting.knob == Knob.RESCTRL_GROUP:
            value = aliases.get(value, value)
        try:
            return self._knobs.parts(setting.knob, target, value)
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

    def _text(self, part: Assignment, held: Lease | None) -> str | None:
        """What stands at a place; None where no process is there to have it."""
        try:
            texts = self._hands.read(part.place)
        except OSError as error:
            raise Declined(Outcome.FAILED, str(error), part.place.key) from error
        if texts is None:
            raise Declined(Outcome.GONE, "it is not there any more", part.place.key)
        entry = held.entries.get(part.place.key) if held else None
        if entry is not None and not isinstance(part.place, KernelFile):
            texts -= {entry.original} if len(texts) > 1 else frozenset()
        if len(texts) > 1:
            shown = ", ".join(sorted(texts))
            raise Declined(Outcome.REFUSED, f"its processes differ ({shown}): somebody sets them apart", part.place.key)
        return next(iter(texts), None)

    def _entry(self, setting: Setting, part: Assignment, text: str, held: Lease | None, now: Clocks) -> JournalEntry:
        identity = self._hands.identity(part.place)
        if identity is None:
            raise Declined(Outcome.GONE, "it is not there any more", part.place.key)
        known = held.entries.get(part.place.key) if held else None
        original = known.original if known and known.identity == identity else text
        ways = (text if known else "", interim(part, text), interim(Assignment(part.place, original), part.value))
        ours = (*part.also, *(way for way in ways if way), part.value)
        return JournalEntry(
            place=part.place,
            identity=identity,
            original=original,
            ours=tuple(dict.fromkeys(ours)),
            by_kernel=part.by_kernel,
            target=setting.target,
            knob=setting.knob.value,
            strategy=setting.strategy,
            verdict=setting.verdict,
            lease_end=now.wall_seconds + setting.lease_seconds,
        )


def _original(part: Assignment, text: str | None, held: Lease | None) -> str:
    entry = held.entries.get(part.place.key) if held else None
    return entry.original if entry else part.value if text is None else text
