"""Order of the writes of one step, in which the kernel accepts each. Pure.

1. Bursts are lowered and cpu.idle cleared: a quota may not fall below its burst, an idle cgroup takes no weight.
2. Limits and protections widen, parents before children.
3. They tighten, children before parents. A list of CPUs that moves widens to both lists first and tightens here.
4. Everything else; resource groups are made before they are filled and removed when they are empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from api.cpuset import format_cpuset, parse_cpuset
from api.intents import Knob
from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import ABSENT, KernelFile, ProcessFiles, ResourceGroup, ResourceTasks
from koordlet.host.knobs.direction import Direction
from koordlet.host.knobs.knobs import Assignment
from koordlet.host.knobs.spec import WritePhase
from koordlet.host.knobs.table import KNOBS

_FIRST, _WIDEN, _TIGHTEN, _LAST = range(4)


@dataclass(frozen=True, slots=True)
class KnobChange:
    """Change of one knob of one target: its assignments, each with the present text."""

    knob: Knob
    target: str
    assignments: tuple[tuple[Assignment, str], ...]
    direction: Direction


@dataclass(frozen=True, slots=True)
class KnobWrite:
    """One write: index of its change, assignment, and text."""

    change: int
    assignment: Assignment
    value: str


def interim(assignment: Assignment, old: str) -> str:
    """Union of both lists, which a list of CPUs passes through where neither holds the other; else empty."""
    attribute = assignment.attribute
    if not isinstance(attribute, KernelFile) or attribute.format != Format.CPUS:
        return ""
    before, after = parse_cpuset(old), parse_cpuset(assignment.value)
    both = before | after
    return "" if not before or not after or both in (before, after) else format_cpuset(both)


def order(changes: Sequence[KnobChange]) -> list[KnobWrite]:
    """All writes, in the order in which to make them."""
    ranked: list[tuple[tuple[int, int, int], KnobWrite]] = []
    for number, change in enumerate(changes):
        for position, (assignment, old) in enumerate(_within(change)):
            passing = interim(assignment, old) if change.direction == Direction.ASIDE else ""
            if passing:
                ranked.append(((_WIDEN, _depth(change.target), position), KnobWrite(number, assignment, passing)))
            rank = (_phase(change), _level(change), position)
            ranked.append((rank, KnobWrite(number, assignment, assignment.value)))
    return [write for _, write in sorted(ranked, key=lambda item: item[0])]


def _phase(change: KnobChange) -> int:
    widens = change.direction == Direction.WIDER
    match KNOBS[change.knob].write_phase:
        case WritePhase.TIGHTENED_FIRST:
            return _FIRST if change.direction == Direction.TIGHTER else _LAST
        case WritePhase.WIDENED_FIRST:
            return _FIRST if widens else _LAST
        case WritePhase.BY_LEVEL:
            return _WIDEN if widens else _TIGHTEN
    return _LAST


def _level(change: KnobChange) -> int:
    if KNOBS[change.knob].write_phase == WritePhase.BY_LEVEL:
        depth = _depth(change.target)
        return depth if change.direction == Direction.WIDER else -depth
    return max(_rank_last(assignment) for assignment, _ in change.assignments)


def _depth(target: str) -> int:
    return len([name for name in target.split("/") if name])


def _rank_last(assignment: Assignment) -> int:
    """Rank among knobs without a level: weights before cpu.idle, groups before their schemata before their tasks."""
    attribute = assignment.attribute
    if isinstance(attribute, ResourceGroup):
        return 9 if assignment.value == ABSENT else 0
    if isinstance(attribute, ResourceTasks):
        return 3
    if isinstance(attribute, ProcessFiles):
        return 4
    return 2 if attribute.path.endswith("/cpu.idle") else 1


def _within(change: KnobChange) -> list[tuple[Assignment, str]]:
    """Assignments in order: a longer period before its quota and a shorter one after it; cpu.idle before its weight."""
    return sorted(change.assignments, key=_inner_rank)


def _inner_rank(item: tuple[Assignment, str]) -> int:
    assignment, old = item
    attribute = assignment.attribute
    if isinstance(attribute, KernelFile):
        name = attribute.path.rpartition("/")[2]
        if name == "cpu.cfs_period_us":
            return 0 if int(assignment.value) > int(old) else 2
        if name in ("cpu.shares", "cpu.weight"):
            return 2
    return 1
