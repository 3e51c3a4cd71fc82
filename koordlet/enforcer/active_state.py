"""The enforcer's present state as a value, and cgroups that are made while those above them are limited.

On cgroup v1 a new cgroup copies the CPU list of its parent. Made below a limited one it therefore starts limited, and
the list that it would have had without the limit is what the journal has to name as its original.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from api.cgroup_path import ancestors
from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.leases import ChangeOfLeases, Lease
from koordlet.enforcer.plan import OriginalOf
from koordlet.enforcer.writer import Writer
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.host.knobs.spec import Scope
from koordlet.host.knobs.table import KNOBS

Values = Mapping[Knob, str]
_NOTHING: Values = MappingProxyType({})
_COPIED = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
"""Knobs that a new cgroup takes from its parent."""
_EXCLUSIVE = (Knob.CPU_IDLE, Knob.CPU_WEIGHT)
"""Knobs of which one puts the other out of effect."""


@dataclass(frozen=True, slots=True)
class ActiveState:
    """Values in effect by path and knob, in the syntax of cgroup v2; immutable."""

    generation: int = 0
    settings: Mapping[str, Values] = field(default_factory=dict)
    """Every setting in effect: of an action, else of the protocol."""
    actions: Mapping[str, Values] = field(default_factory=dict)
    """Actions alone."""

    def of(self, path: str) -> Values:
        """Return the values in effect at a cgroup."""
        return self.settings.get(path, _NOTHING)

    def next(self, active: Mapping[Owner, Lease]) -> "ActiveState":
        """Return the state with these leases; itself where nothing changed."""
        settings: dict[str, dict[Knob, str]] = {}
        actions: dict[str, dict[Knob, str]] = {}
        for (path, knob), lease in active.items():
            settings.setdefault(path, {})[knob] = lease.setting.value
            if not lease.setting.protocol_state:
                actions.setdefault(path, {})[knob] = lease.setting.value
        if settings == self.settings and actions == self.actions:
            return self
        return ActiveState(self.generation + 1, MappingProxyType(settings), MappingProxyType(actions))


class SettledState:
    """Protocol state in effect that a step need not look at: its strategies are silent and nothing else touches it.

    It was found in effect under the present rules of protection before. It is verified like all else.
    """

    def __init__(self) -> None:
        self._change = ChangeOfLeases()
        self._known_for: tuple[object, frozenset[str]] = (None, frozenset())
        self._is_complete = False
        self._settled: dict[Owner, Lease] = {}
        self._loose: list[Lease] = []

    def owners(
        self,
        active: Mapping[Owner, Lease],
        asked: Iterable[Setting],
        protection: object,
        silent: Collection[str],
    ) -> Collection[Owner]:
        """Return the owners of what is settled, and untouched by all that is asked for and by the other leases."""
        known_for = (protection, frozenset(silent))
        has_changed = self._change.since_last(active)
        if has_changed or not self._is_complete or known_for != self._known_for:
            self._known_for = known_for
            self._sort(active, protection, silent)
        touched = set(self._touched(chain(asked, *(lease.layers for lease in self._loose))))
        return self._settled.keys() - touched if touched else self._settled.keys()

    def _sort(self, active: Mapping[Owner, Lease], protection: object, silent: Collection[str]) -> None:
        self._settled, self._loose, self._is_complete = {}, [], True
        for owner, lease in active.items():
            is_candidate = _is_plain_state(lease) and lease.setting.strategy in silent
            if is_candidate and lease.granted_by is protection:
                self._settled[owner] = lease
            else:
                self._loose.append(lease)
                self._is_complete &= not is_candidate

    def _touched(self, others: Iterable[Setting]) -> Iterator[Owner]:
        knobs_of_processes = set()
        for one in others:
            if (one.target, one.knob) in self._settled:
                yield one.target, one.knob
            if one.knob in _EXCLUSIVE:
                yield from ((one.target, knob) for knob in _EXCLUSIVE)
            if KNOBS[one.knob].scope == Scope.PROCESSES:
                knobs_of_processes.add(one.knob)
        if knobs_of_processes:  # they hold for the cgroups below as well
            yield from (owner for owner in self._settled if owner[1] in knobs_of_processes)


def _is_plain_state(lease: Lease) -> bool:
    setting = lease.setting
    is_grouped = setting.knob in (Knob.RESCTRL_GROUP, Knob.RESCTRL_SCHEMATA)
    return setting.protocol_state and not (lease.bases or lease.is_inherited or is_grouped)


class Births:
    """Cgroups that were made below a limited one, and the originals that they would have had."""

    def __init__(self, knobs: Knobs, writer: Writer) -> None:
        self._knobs = knobs
        self._writer = writer
        self._seen: dict[str, float] = {}
        """Monotonic second at which each present cgroup was seen first."""
        self._new: list[str] = []
        self._born: dict[Owner, Owner] = {}
        """New cgroup and knob, to the limited one above it."""

    def see(self, paths: Iterable[str], now_seconds: float) -> None:
        """Take the present cgroups."""
        present = {path: self._seen.get(path, now_seconds) for path in paths}
        self._new = [path for path in present if path not in self._seen] if self._seen else []
        self._seen = present
        self._born = {owner: above for owner, above in self._born.items() if owner[0] in present}

    def settings(self, asked: Iterable[Setting], active: Mapping[Owner, Lease]) -> list[Setting]:
        """Settings for cgroups that were made limited and that no strategy asks anything for."""
        for path in self._new:
            for knob in _COPIED:
                self._note_birth((path, knob), active)
        self._new = []
        if not self._born:
            return []
        wanted = {(one.target, one.knob): one for one in asked if not one.protocol_state}
        return [
            Setting(
                strategy=limit.strategy,
                target=path,
                reason=f"it was made while {above[0]} was limited",
                verdict=limit.verdict,
                strength=limit.strength,
                knob=knob,
                value=limit.value,
                lease_seconds=limit.lease_seconds,
            )
            for (path, knob), above in self._born.items()
            if (path, knob) not in wanted and (limit := wanted.get(above)) is not None
        ]

    def _note_birth(self, owner: Owner, active: Mapping[Owner, Lease]) -> None:
        above = _limited_above(owner, active)
        if above is None:
            return
        try:
            (assignment,) = self._knobs.assignments(owner[1], owner[0], active[above].setting.value)
            texts = self._writer.read(assignment.attribute) or frozenset()
        except (OSError, ValueError, Unsupported, CgroupGone):
            return
        if texts == {assignment.value}:
            self._born[owner] = above

    def original_of(self, owner: Owner, active: Mapping[Owner, Lease]) -> OriginalOf:
        """For the plan of a setting: from the text found to the one that the cgroup would have had."""
        above = _limited_above(owner, active) if owner[1] in _COPIED else None
        if above is None:
            return _as_found
        limit = active[above]
        seen = self._seen.get(owner[0])
        is_younger = limit.is_inherited or seen is None or seen > limit.since_seconds
        if not is_younger or not limit.entries:
            return _as_found
        (entry, *_) = limit.entries.values()
        return lambda text: entry.without_action().original if text in entry.ours else None


def _limited_above(owner: Owner, active: Mapping[Owner, Lease]) -> Owner | None:
    """The nearest cgroup above whose CPU list an action changed."""
    path, knob = owner
    for above in ancestors(path):
        lease = active.get((above, knob))
        if lease is not None and lease.entries and not lease.setting.protocol_state:
            return above, knob
    return None


def _as_found(_text: str) -> str | None:
    return None
