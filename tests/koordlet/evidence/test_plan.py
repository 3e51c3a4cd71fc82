"""Whose stacks are taken, and how they fold."""

import pytest

from api.frame import KERNEL_ID, CgroupInfo
from api.stacks import StackKind, StackRole, unresolved_ratio
from api.verdicts import KERNEL, OTHER, Culprit, How, Severity, Verdict, VerdictState
from koordlet.evidence.plan import MAX_STACKS, OTHERS, NamedStack, StackPlan, Target, plan_for, plan_of, series_of
from probes.stacks import HZ, Role, Sample, SampleKind

CGROUPS = tuple(
    CgroupInfo(number, path, path.rpartition("/")[2])
    for number, path in enumerate(("/pod", "/pod/app", "/pod/proxy", "/batch", "/podium"), start=10)
)


def verdict(victim: str, *culprits: str) -> Verdict:
    return Verdict(
        time=5.0,
        state=VerdictState.OPEN,
        victim=victim,
        resource="cpu",
        cause="contention",
        lost_seconds_per_second=0.5,
        severity=Severity.HIGH,
        culprits=tuple(Culprit(path, 0.2, How.DIRECT) for path in culprits),
        rule="cpu_contention",
    )


def test_victims_wait_and_culprits_run() -> None:
    plan = plan_of(verdict("/pod", OTHER, "/batch", KERNEL, "/gone"), CGROUPS)
    assert [(target.path, sorted(target.ids)) for target in plan.targets] == [
        ("/pod", [10, 11, 12]),
        ("/batch", [13]),
        (KERNEL, [KERNEL_ID]),
    ]
    assert plan.roles[11] == Role.WAITS_TOO
    assert plan.roles[13] == plan.roles[KERNEL_ID] == Role.SAMPLED


def test_a_victim_that_is_gone_leaves_its_culprits() -> None:
    plan = plan_of(verdict("/gone", "/batch", "/gone"), CGROUPS)
    assert [target.role for target in plan.targets] == [StackRole.CULPRIT]


def test_a_request_names_one_cgroup() -> None:
    assert plan_for("app", CGROUPS).victim == "/pod/app"
    with pytest.raises(ValueError, match="0 cgroups"):
        plan_for("absent", CGROUPS)


def named(kind: SampleKind, frames: tuple[str, ...], *, count: int = 1, ns: int = 0, taken: bool = True) -> NamedStack:
    return NamedStack(
        Sample(11, 7, kind, count, ns, (), (), taken), ("redis", *frames), sum(f == "[lib]" for f in frames)
    )


PLAN = StackPlan("/pod", "r", (Target("/pod", StackRole.VICTIM, frozenset({10, 11})),))


def test_equal_stacks_add_up_and_the_nameless_share_is_told() -> None:
    (series,) = series_of(
        PLAN,
        [
            named(SampleKind.ON_CPU, ("main", "[lib]"), count=HZ),
            named(SampleKind.ON_CPU, ("main", "[lib]"), count=HZ),
            named(SampleKind.BLOCKED, ("main", "wait"), count=2, ns=3_000_000_000),
            named(SampleKind.BLOCKED, (), count=9, ns=500_000_000, taken=False),
        ],
    )
    assert [(stack.kind, stack.count, stack.seconds) for stack in series.stacks] == [
        (StackKind.BLOCKED, 2, 3.0),
        (StackKind.ON_CPU, 2 * HZ, 2.0),
    ]
    assert series.unseen_seconds == {StackKind.BLOCKED: 0.5}
    assert unresolved_ratio(series) == 2 * HZ / (4 * HZ + 4)


def test_the_number_of_stacks_is_bounded_and_their_time_is_kept() -> None:
    many = [named(SampleKind.ON_CPU, (f"f{number}",)) for number in range(MAX_STACKS + 50)]
    (series,) = series_of(PLAN, many)
    assert len(series.stacks) == MAX_STACKS + 1
    rest = next(stack for stack in series.stacks if stack.frames == (OTHERS,))
    assert rest.count == 50
    assert sum(stack.count for stack in series.stacks) == MAX_STACKS + 50
