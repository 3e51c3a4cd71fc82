"""CPU selection: the reference's table, and nothing is handed out twice or against a policy."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import format_cpuset, parse_cpuset
from scheduler.numa.accumulator import CpuDemand, CpuOffer, take_cpus
from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy, CpuTopology, NumaStrategy

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = NumaStrategy.MOST_ALLOCATED, NumaStrategy.LEAST_ALLOCATED
PCPU, NUMA = CpuExclusivePolicy.PCPU_LEVEL, CpuExclusivePolicy.NUMA_NODE_LEVEL


def machine(sockets: int, nodes: int, cores: int, threads: int, allocated: str = "") -> CpuOffer:
    topology = CpuTopology.regular(sockets, nodes, cores, threads)
    return CpuOffer(topology, frozenset(topology.cpus) - parse_cpuset(allocated))


@pytest.mark.parametrize(
    ("shape", "allocated", "bind", "strategy", "need", "expected"),
    [
        pytest.param((2, 2, 4, 2), "0-5,16-23", FULL, MOST, 6, "24-29", id="most-of-a-node"),
        pytest.param((2, 2, 4, 2), "0-5,16-23", FULL, MOST, 12, "6-15,24-25", id="most-across-nodes"),
        pytest.param((2, 2, 4, 2), "0-5,16-23", FULL, LEAST, 6, "8-13", id="least-loaded-node"),
        pytest.param((2, 2, 4, 2), "0-3,8-11", FULL, MOST, 4, "4-7", id="most-used-node"),
        pytest.param((2, 2, 4, 2), "0-3,8-11", FULL, LEAST, 4, "16-19", id="least-used-node"),
        pytest.param((2, 1, 4, 2), "0,1", FULL, MOST, 8, "8-15", id="a-whole-socket"),
        pytest.param((1, 1, 4, 2), "", SPREAD, MOST, 4, "0,2,4,6", id="spread"),
        pytest.param((2, 1, 4, 2), "0,2", SPREAD, MOST, 4, "1,3-4,6", id="spread-beside-siblings"),
        pytest.param((2, 1, 4, 2), "0-3", SPREAD, MOST, 4, "8,10,12,14", id="spread-on-a-free-socket"),
        pytest.param((2, 1, 4, 2), "", FULL, MOST, 16, "0-15", id="everything"),
        pytest.param((1, 1, 4, 2), "", FULL, MOST, 3, "0-2", id="odd-count"),
        pytest.param((2, 1, 4, 1), "", FULL, LEAST, 3, "0-2", id="one-thread-per-core"),
        pytest.param((2, 1, 2, 2), "0,2,4,6", SPREAD, LEAST, 3, "1,3,5", id="spread-odd"),
    ],
)
def test_reference_table(
    shape: tuple[int, int, int, int],
    allocated: str,
    bind: CpuBindPolicy,
    strategy: NumaStrategy,
    need: int,
    expected: str,
) -> None:
    taken = take_cpus(machine(*shape, allocated), CpuDemand(need, bind), strategy)
    assert taken is not None
    assert format_cpuset(taken) == expected


def test_exclusive_core_is_avoided_and_then_accepted() -> None:
    topology = CpuTopology.regular(1, 1, 2, 2)
    offer = CpuOffer(topology, frozenset({1, 2, 3}), exclusive_cores=frozenset({0}))
    demand = CpuDemand(2, SPREAD, PCPU)
    assert take_cpus(offer, CpuDemand(1, SPREAD, PCPU), MOST) == {2}
    assert take_cpus(offer, demand, MOST) == {2, 3} or take_cpus(offer, demand, MOST) == {1, 2}
    assert take_cpus(offer, CpuDemand(3, SPREAD, PCPU), MOST) == {1, 2, 3}


def test_exclusive_numa_node_is_avoided_and_then_accepted() -> None:
    topology = CpuTopology.regular(2, 1, 4, 2)
    offer = CpuOffer(topology, frozenset(range(2, 16)), exclusive_nodes=frozenset({0}))
    assert take_cpus(offer, CpuDemand(4, FULL, NUMA), MOST) == {8, 9, 10, 11}
    assert take_cpus(offer, CpuDemand(4, FULL), MOST) == {2, 3, 4, 5}
    only_shared = CpuOffer(topology, frozenset(range(2, 8)), exclusive_nodes=frozenset({0}))
    assert take_cpus(only_shared, CpuDemand(4, FULL, NUMA), MOST) == {2, 3, 4, 5}


@pytest.mark.parametrize(
    ("free", "demand", "expected"),
    [
        pytest.param("1-3,5,7", CpuDemand(2, FULL, required=True), "2-3", id="full-core"),
        pytest.param("1-3,5,7", CpuDemand(4, FULL, required=True), None, id="full-cores-lacking"),
        pytest.param("0-7", CpuDemand(3, FULL, required=True), None, id="full-odd"),
        pytest.param("0-7", CpuDemand(4, SPREAD, required=True), "0,2,4,6", id="spread"),
        pytest.param("0-7", CpuDemand(5, SPREAD, required=True), None, id="spread-too-many"),
        pytest.param("0-7", CpuDemand(9, FULL), None, id="not-required-too-many"),
    ],
)
def test_required_policies(free: str, demand: CpuDemand, expected: str | None) -> None:
    offer = CpuOffer(CpuTopology.regular(1, 1, 4, 2), parse_cpuset(free))
    taken = take_cpus(offer, demand, MOST)
    assert (None if taken is None else format_cpuset(taken)) == expected


def test_preferred_cpus_are_used_up_first() -> None:
    topology = CpuTopology.regular(2, 1, 4, 2)
    offer = CpuOffer(topology, frozenset(topology.cpus), preferred=frozenset({12, 13}))
    assert take_cpus(offer, CpuDemand(2, FULL), LEAST) == {12, 13}
    taken = take_cpus(offer, CpuDemand(4, FULL), LEAST)
    assert taken is not None
    assert {12, 13} < taken


@pytest.mark.parametrize(
    "preferred",
    [
        pytest.param({1}, id="one"),
        pytest.param({1, 2}, id="siblings-apart"),
        pytest.param({2, 3}, id="siblings"),
        pytest.param({1, 2, 3, 4}, id="four"),
    ],
)
@pytest.mark.parametrize("bind", [FULL, SPREAD])
def test_preferred_cpus_do_not_break_a_required_policy(preferred: set[int], bind: CpuBindPolicy) -> None:
    topology = CpuTopology.regular(1, 1, 4, 2)
    offer = CpuOffer(topology, frozenset(topology.cpus), preferred=frozenset(preferred))
    taken = take_cpus(offer, CpuDemand(4, bind, required=True), LEAST)
    assert taken is not None
    assert len(taken) == 4


shapes = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 4), st.integers(1, 2))


@given(
    shapes,
    st.randoms(use_true_random=False),
    st.integers(1, 34),
    st.sampled_from([FULL, SPREAD]),
    st.sampled_from(list(CpuExclusivePolicy)),
    st.booleans(),
    st.sampled_from([MOST, LEAST]),
)
def test_taken_is_free_complete_and_obeys(
    shape: tuple[int, int, int, int],
    random: Random,
    need: int,
    bind: CpuBindPolicy,
    exclusive: CpuExclusivePolicy,
    required: bool,
    strategy: NumaStrategy,
) -> None:
    topology = CpuTopology.regular(*shape)
    free = frozenset(cpu for cpu in topology.cpus if random.random() < 0.7)
    cores = frozenset(cpu.core for cpu in topology.cpus.values() if random.random() < 0.3)
    offer = CpuOffer(topology, free, exclusive_cores=cores, exclusive_nodes=frozenset({0}))
    demand = CpuDemand(need, bind, exclusive, required)
    taken = take_cpus(offer, demand, strategy)
    if taken is None:
        required_pool = topology.whole_cores(free) if bind is FULL else topology.first_threads(free)
        possible = len(required_pool if required else free)
        odd = required and bind is FULL and need % topology.threads_per_core
        assert need > possible or odd
        return
    assert len(taken) == need
    assert taken <= free
    if required and bind is FULL:
        assert topology.whole_cores(taken) == taken
    if required and bind is SPREAD:
        assert len({topology.cpus[cpu].core for cpu in taken}) == need
