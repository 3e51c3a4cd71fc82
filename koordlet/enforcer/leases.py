"""What is ours at present: settings that stand, resource groups we made, and what could not be put back yet."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from api.intents import Knob, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.events import Clocks, EnforcerEvent, of_entry
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.rollback import Ownership, Returned, look, put_back
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import KernelFile, TrafficClass

_ALL_AT_ONCE = 256
_TURNS = 5
_RETRY_SECONDS = 10.0

Tell = Callable[[EnforcerEvent], None]


@dataclass(slots=True)
class Lease:
    """A setting that stands."""

    setting: Setting
    entries: dict[str, JournalEntry]
    """By the place's key; empty where it stood already when it was first wanted."""
    lease_end: float
    """Monotonic seconds."""


class Leases:
    """Leases and hold-offs are monotonic seconds."""

    def __init__(self, journal: Journal | NoJournal, hands: KernelWriter, foreign_write_backoff_seconds: float) -> None:
        self._journal = journal
        self._hands = hands
        self._hold_off_seconds = foreign_write_backoff_seconds
        self.held: dict[Owner, Lease] = {}
        self.groups: dict[str, JournalEntry] = {}
        """Resource groups that we made, by name."""
        self._leftover: dict[str, JournalEntry] = {}
        self._retry_at = -math.inf
        self._held_off: dict[Owner, tuple[float, str]] = {}
        self._turn = 0

    def left_alone(self, owner: Owner, now_seconds: float) -> str:
        """Why a knob is not to be touched for a while; empty if it may be."""
        until, reason = self._held_off.get(owner, (-math.inf, ""))
        return reason if until > now_seconds else ""

    def leave_alone(self, owner: Owner, now_seconds: float, reason: str, seconds: float | None = None) -> None:
        """Do not touch a knob for a while: as long as after a foreign write, or for `seconds`."""
        self._held_off[owner] = (now_seconds + (self._hold_off_seconds if seconds is None else seconds), reason)

    def claims(self) -> dict[str, Owner | None]:
        """Whose each place is; None for those that are still to be put back from before."""
        owned: dict[str, Owner | None] = {key: owner for owner, held in self.held.items() for key in held.entries}
        return owned | dict.fromkeys(self._leftover)

    def verify(self, now: Clocks, tell: Tell) -> None:
        """See whether what is ours still stands; where there is much of it, a part in each step."""
        over = [owner for owner, (until, _) in self._held_off.items() if until <= now.monotonic_seconds]
        for owner in over:
            del self._held_off[owner]
        owners = list(self.held)
        if sum(len(held.entries) for held in self.held.values()) > _ALL_AT_ONCE:
            owners = owners[self._turn % _TURNS :: _TURNS]
        self._turn += 1
        for owner in owners:
            self.verify_one(owner, now, tell)

    def verify_one(self, owner: Owner, now: Clocks, tell: Tell) -> None:
        """Of one knob: give it up if its cgroup is gone or somebody else wrote there."""
        held = self.held[owner]
        foreign, gone = [], []
        for entry in held.entries.values():
            if entry.by_kernel:
                continue
            try:
                standing, text = look(entry, self._hands)
                if standing == Ownership.GONE:
                    gone.append(Returned(entry, Outcome.GONE, "", "the cgroup is no more, or another of its name"))
                elif isinstance(entry.place, KernelFile | TrafficClass) and _is_foreign(entry, standing):
                    foreign.append(Returned(entry, Outcome.FOREIGN_WRITE, text, _whose(standing)))
                elif not isinstance(entry.place, KernelFile):
                    self._gather(entry, standing, text, foreign)
            except OSError as error:
                tell(of_entry(entry, Outcome.FAILED, str(error), before=""))
        if gone:
            self._give_up(owner, gone, tell)
        elif foreign:
            self.leave_alone(owner, now.monotonic_seconds, foreign[0].reason)
            self._give_up(owner, foreign, tell)

    def _gather(self, entry: JournalEntry, standing: Ownership, text: str, foreign: list[Returned]) -> None:
        """Processes come and go: those that still have the original get ours."""
        if standing == Ownership.FOREIGN:
            foreign.append(Returned(entry, Outcome.FOREIGN_WRITE, text, _whose(standing)))
        elif standing == Ownership.PARTLY or text == entry.original:
            self._hands.write(entry.place, entry.ours[-1], {entry.original, *entry.ours}, entry.identity)

    def _give_up(self, owner: Owner, given_up: list[Returned], tell: Tell) -> None:
        """Forget some places of a knob and put its others back."""
        held = self.held.pop(owner)
        keys = {returned.entry.place.key for returned in given_up}
        rest = [entry for key, entry in held.entries.items() if key not in keys]
        self._settle([*given_up, *put_back(rest, self._hands)], tell)

    def release(self, owners: Collection[Owner], why: str, now: Clocks, tell: Tell) -> None:
        """Put back what is no longer wanted; what the kernel refuses is tried again later."""
        entries: list[JournalEntry] = []
        for owner in owners:
            entries += self.held.pop(owner).entries.values()
        known = len(self._leftover)
        self._settle(put_back(entries, self._hands), tell, why)
        if len(self._leftover) > known:
            self._retry_at = now.monotonic_seconds + _RETRY_SECONDS

    def release_groups(self, used: Collection[str], tell: Tell) -> None:
        """Remove the resource groups of ours that nobody uses."""
        unused = [self.groups.pop(name) for name in list(self.groups) if name not in used]
        self._settle(put_back(unused, self._hands), tell, "nobody uses the group")

    def adopt(self, entries: Iterable[JournalEntry], tell: Tell) -> None:
        """Put back what an earlier run left."""
        self._settle(put_back(entries, self._hands), tell, "left by an earlier run")

    def retry(self, now: Clocks, tell: Tell) -> None:
        """Try again what could not be put back."""
        if self._leftover and now.monotonic_seconds >= self._retry_at:
            self._retry_at = now.monotonic_seconds + _RETRY_SECONDS
            entries, self._leftover = list(self._leftover.values()), {}
            self._settle(put_back(entries, self._hands), tell, "tried again")

    def release_all(self, tell: Tell) -> bool:
        """Put everything back; whether nothing remains."""
        entries = [*self._leftover.values(), *self.groups.values()]
        for held in self.held.values():
            entries += held.entries.values()
        self.held.clear()
        self.groups.clear()
        self._leftover.clear()
        self._settle(put_back(entries, self._hands), tell, "the agent stops")
        return not self._leftover

    def _settle(self, returned: list[Returned], tell: Tell, why: str = "") -> None:
        for one in returned:
            if one.outcome == Outcome.FAILED:
                self._leftover[one.entry.place.key] = one.entry
            reason = ": ".join(filter(None, (why, one.reason)))
            tell(of_entry(one.entry, one.outcome, reason, before=one.before))
        self._journal.drop(one.entry.place.key for one in returned if one.outcome != Outcome.FAILED)


def _is_foreign(entry: JournalEntry, standing: Ownership) -> bool:
    if standing == Ownership.ORIGINAL:
        return entry.ours[-1] != entry.original
    return standing == Ownership.FOREIGN


def _whose(standing: Ownership) -> str:
    if standing == Ownership.ORIGINAL:
        return "somebody else put the original back"
    return "somebody else wrote there"


def groups_of(setting: Setting) -> set[str]:
    """The resource groups that a setting needs."""
    if setting.knob == Knob.RESCTRL_GROUP:
        return {setting.value} - {""}
    return {setting.target} - {""} if setting.knob == Knob.RESCTRL_SCHEMATA else set()
