"""Plans on one machine: alignment under each policy, CPUs inside the mask, and the reasons against."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import format_cpuset
from api.kube.resources import CPU, MEMORY
from scheduler.numa.accumulator import CpuDemand
from scheduler.numa.hints import NumaHint, NumaPolicy
from scheduler.numa.machine import CpuHold, Machine, MachineShape
from scheduler.numa.plan import NumaDemand, PlanError, make_plan
from scheduler.numa.topology import CpuBindPolicy, CpuTopology, NumaStrategy

ZONES = {0: {CPU: 8000, MEMORY: 100}, 1: {CPU: 8000, MEMORY: 100}}
FULL = CpuBindPolicy.FULL_PCPUS
NONE, BEST, RESTRICTED, SINGLE = NumaPolicy


def machine(used: int = 0) -> Machine:
    ledger = Machine(MachineShape(CpuTopology.regular(2, 1, 4, 2), numa=ZONES))
    if used:
        ledger.hold("other", CpuHold(frozenset(range(used)), numa={0: {CPU: 1000 * used}}))
    return ledger


@pytest.mark.parametrize(
    ("policy", "used", "cpus", "memory", "mask"),
    [
        (NONE, 4, 6, 50, 0),
        (BEST, 4, 6, 50, 0b10),
        (RESTRICTED, 4, 6, 50, 0b10),
        (SINGLE, 4, 4, 50, 0b01),
        (SINGLE, 4, 5, 50, 0b10),
        (BEST, 0, 10, 50, 0b11),
        (RESTRICTED, 0, 10, 150, 0b11),
    ],
)
def test_mask(policy: NumaPolicy, used: int, cpus: int, memory: int, mask: int) -> None:
    plan = make_plan(machine(used), NumaDemand(1000 * cpus, memory, node_policy=policy))
    assert plan.mask == mask
    if mask:
        assert sum(part.get(CPU, 0) for part in plan.numa.values()) == 1000 * cpus
        assert sum(part.get(MEMORY, 0) for part in plan.numa.values()) == memory
        assert sum(1 << node for node in plan.numa) <= mask


@pytest.mark.parametrize(("policy", "cpus"), [(SINGLE, 9), (RESTRICTED, 17)])
def test_no_alignment_is_a_reason(policy: NumaPolicy, cpus: int) -> None:
    with pytest.raises(PlanError, match="NUMA topology affinity"):
        make_plan(machine(), NumaDemand(1000 * cpus, 10, node_policy=policy))


def test_unreported_machine_cannot_promise_alignment() -> None:
    with pytest.raises(PlanError):
        make_plan(Machine(), NumaDemand(1000, node_policy=SINGLE))
    assert make_plan(Machine(), NumaDemand(1000, node_policy=BEST)).mask == 0


def test_cpus_lie_inside_the_mask_that_devices_choose() -> None:
    demand = NumaDemand(4000, cpus=CpuDemand(4, FULL), node_policy=SINGLE)
    plan = make_plan(machine(), demand, device_hints=[[NumaHint(0b10, True, 500)]])
    assert format_cpuset(plan.cpus) == "8-11"
    assert plan.numa == {1: {CPU: 4000}}


def test_best_effort_takes_cpus_elsewhere_when_the_mask_has_none_left() -> None:
    ledger = Machine(MachineShape(CpuTopology.regular(2, 1, 4, 2), frozenset(range(8, 14)), ZONES))
    demand = NumaDemand(4000, cpus=CpuDemand(4, FULL), node_policy=BEST)
    plan = make_plan(ledger, demand, device_hints=[[NumaHint(0b10, True)]])
    assert len(plan.cpus) == 4


def test_amounts_can_be_split_evenly() -> None:
    demand = NumaDemand(12000, 100, node_policy=BEST, strategy=NumaStrategy.DISTRIBUTE_EVENLY)
    plan = make_plan(machine(), demand)
    assert plan.numa == {0: {CPU: 6000, MEMORY: 50}, 1: {CPU: 6000, MEMORY: 50}}


@given(
    st.integers(0, 16),
    st.integers(1, 16),
    st.integers(0, 220),
    st.sampled_from(list(NumaPolicy)),
    st.booleans(),
)
def test_a_plan_never_exceeds_what_is_free(used: int, cpus: int, memory: int, policy: NumaPolicy, bound: bool) -> None:
    ledger = machine(min(used, 8))
    demand = NumaDemand(1000 * cpus, memory, CpuDemand(cpus, FULL) if bound else None, policy)
    try:
        plan = make_plan(ledger, demand)
    except PlanError:
        return
    assert plan.cpus <= ledger.free
    assert len(plan.cpus) == (cpus if bound else 0)
    for resource in (CPU, MEMORY):
        free = ledger.numa_free(resource)
        if plan.mask and policy is not BEST:
            assert all(part.get(resource, 0) <= free[node] for node, part in plan.numa.items())
    if policy is SINGLE:
        assert plan.mask.bit_count() == 1
        assert len(plan.numa) <= 1
