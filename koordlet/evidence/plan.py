"""Whose stacks a verdict asks for, and the folding of samples into series; decides from values alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.cgroup_path import is_within
from api.frame import KERNEL_ID, CgroupInfo
from api.stacks import Stack, StackKind, StackRole, StackSeries
from api.verdicts import KERNEL, Verdict
from probes.stacks import HZ, MAX_CGROUPS, Role, Sample, SampleKind

MAX_CULPRITS = 3
MAX_STACKS = 150
"""Of a series and kind; the rest becomes one."""
OTHERS = "[others]"

_KINDS = {
    SampleKind.ON_CPU: StackKind.ON_CPU,
    SampleKind.PREEMPTED: StackKind.PREEMPTED,
    SampleKind.BLOCKED: StackKind.BLOCKED,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A cgroup with all below it."""

    path: str
    role: StackRole
    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class StackPlan:
    """One measurement."""

    victim: str
    rule: str
    targets: tuple[Target, ...]

    @property
    def roles(self) -> dict[int, Role]:
        """What is measured of each cgroup id: waits of victims alone."""
        roles: dict[int, Role] = {}
        for target in self.targets:
            role = Role.WAITS_TOO if target.role is StackRole.VICTIM else Role.SAMPLED
            for identity in target.ids:
                roles[identity] = roles.get(identity, role) | role
        return roles


@dataclass(frozen=True, slots=True)
class NamedStack:
    """A sample with its frames, outermost first, and the number of those without a name."""

    sample: Sample
    frames: tuple[str, ...]
    unnamed: int


def plan_of(verdict: Verdict, cgroups: Sequence[CgroupInfo]) -> StackPlan:
    """The victim and its worst culprits, those that are there; kernel threads where these are blamed."""
    named = [culprit.path for culprit in verdict.culprits if culprit.path == KERNEL or not culprit.path.startswith("[")]
    culprits = [path for path in named if path != verdict.victim][:MAX_CULPRITS]
    found = [_target(verdict.victim, StackRole.VICTIM, cgroups)]
    found += [_target(path, StackRole.CULPRIT, cgroups) for path in culprits]
    return StackPlan(verdict.victim, verdict.rule, tuple(target for target in found if target.ids))


def plan_for(wanted: str, cgroups: Sequence[CgroupInfo]) -> StackPlan:
    """All that can be seen of one cgroup, by its path or name. Raises ValueError where none or several are meant."""
    found = [info.path for info in cgroups if wanted in (info.path, info.name)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} cgroups have the path or name {wanted!r}; give the path of one")
    return StackPlan(found[0], "", (_target(found[0], StackRole.VICTIM, cgroups),))


def _target(path: str, role: StackRole, cgroups: Sequence[CgroupInfo]) -> Target:
    if path == KERNEL:
        return Target(path, role, frozenset({KERNEL_ID}))
    ids = [info.id for info in cgroups if is_within(info.path, path)]
    return Target(path, role, frozenset(ids[: MAX_CGROUPS // (MAX_CULPRITS + 1)]))


def series_of(plan: StackPlan, stacks: Iterable[NamedStack]) -> tuple[StackSeries, ...]:
    """A series for each target, the victim first."""
    listed = list(stacks)
    return tuple(
        _series(target, [each for each in listed if each.sample.cgroup in target.ids]) for target in plan.targets
    )


def _series(target: Target, stacks: Sequence[NamedStack]) -> StackSeries:
    sums: dict[StackKind, dict[tuple[str, ...], tuple[int, float]]] = defaultdict(dict)
    unseen: dict[StackKind, float] = {}
    frames = unnamed = 0
    for each in stacks:
        sample, kind = each.sample, _KINDS[each.sample.kind]
        seconds = sample.count / HZ if kind is StackKind.ON_CPU else sample.ns / 1e9
        if not sample.taken:
            unseen[kind] = unseen.get(kind, 0.0) + seconds
            continue
        frames += (len(each.frames) - 1) * sample.count  # the first names the process
        unnamed += each.unnamed * sample.count
        count, total = sums[kind].get(each.frames, (0, 0.0))
        sums[kind][each.frames] = count + sample.count, total + seconds
    found = [stack for kind, of_kind in sums.items() for stack in _bounded(kind, of_kind)]
    return StackSeries(
        path=target.path,
        role=target.role,
        stacks=tuple(sorted(found, key=lambda stack: (-stack.seconds, stack.frames))),
        frames=frames,
        unresolved_frames=unnamed,
        unseen_seconds=unseen,
    )


def _bounded(kind: StackKind, sums: Mapping[tuple[str, ...], tuple[int, float]]) -> list[Stack]:
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    stacks = [Stack(kind, frames, count, seconds) for frames, (count, seconds) in ranked[:MAX_STACKS]]
    rest = [values for _, values in ranked[MAX_STACKS:]]
    if rest:
        stacks.append(Stack(kind, (OTHERS,), sum(count for count, _ in rest), sum(seconds for _, seconds in rest)))
    return stacks
