"""The ledger of one machine: free CPUs, NUMA amounts, amplification, and reservations counted once."""

from api.kube.resources import CPU, MEMORY
from scheduler.numa.machine import CpuHold, Machine, MachineShape
from scheduler.numa.placement import NumaStatus
from scheduler.numa.topology import CpuExclusivePolicy, CpuTopology

TOPOLOGY = CpuTopology.regular(2, 1, 4, 2)
ZONES = {0: {CPU: 8000, MEMORY: 100}, 1: {CPU: 8000, MEMORY: 100}}


def machine(ratio: float = 1.0) -> Machine:
    return Machine(MachineShape(TOPOLOGY, frozenset({15}), ZONES, ratio))


def test_withheld_and_held_cpus_are_not_free() -> None:
    ledger = machine()
    ledger.hold("a", CpuHold(frozenset({0, 1})))
    assert ledger.free == frozenset(range(2, 15))
    ledger.release("a")
    ledger.release("unknown")
    assert len(ledger.free) == 15


def test_numa_amounts_by_node() -> None:
    ledger = machine()
    ledger.hold("a", CpuHold(frozenset({0, 1}), numa={0: {CPU: 2000, MEMORY: 30}}))
    assert ledger.numa_free(CPU) == {0: 6000, 1: 8000}
    assert ledger.numa_free(MEMORY) == {0: 70, 1: 100}


def test_amplified_machine_charges_own_cpus_by_the_ratio() -> None:
    ledger = machine(1.5)
    ledger.hold("own", CpuHold(frozenset({0, 1}), numa={0: {CPU: 2000}}))
    ledger.hold("shared", CpuHold(numa={1: {CPU: 2000}}))
    assert ledger.numa_total(CPU) == {0: 12000, 1: 12000}
    assert ledger.numa_free(CPU) == {0: 9000, 1: 10000}


def test_machine_without_zones_counts_its_cpus() -> None:
    ledger = Machine(MachineShape(TOPOLOGY, frozenset({15})))
    assert ledger.numa_total(CPU) == {0: 8000, 1: 7000}
    assert ledger.numa_total(MEMORY) == {}


def test_reservation_and_its_pods_count_once() -> None:
    ledger = machine()
    ledger.hold("reservation", CpuHold(frozenset(range(4)), numa={0: {CPU: 4000}}))
    ledger.hold("owner", CpuHold(frozenset({0, 1}), numa={0: {CPU: 2000}}, within="reservation"))
    assert ledger.numa_free(CPU)[0] == 4000
    assert ledger.bound_millicores == 4000
    view = ledger.without(["reservation"])
    assert view.numa_free(CPU)[0] == 6000
    assert view.free == frozenset(range(2, 15))
    ledger.release("reservation")
    assert ledger.numa_free(CPU)[0] == 6000


def test_offer_names_where_exclusive_pods_sit() -> None:
    ledger = machine()
    ledger.hold("core", CpuHold(frozenset({0}), CpuExclusivePolicy.PCPU_LEVEL))
    ledger.hold("node", CpuHold(frozenset({8}), CpuExclusivePolicy.NUMA_NODE_LEVEL))
    offer = ledger.offer(frozenset({0, 2}), mask=0b01)
    assert offer.exclusive_cores == {0}
    assert offer.exclusive_nodes == {1}
    assert offer.free == frozenset(range(1, 8))
    assert offer.preferred == {2}


def test_status_by_masks() -> None:
    ledger = machine()
    ledger.hold("single", CpuHold(numa={1: {CPU: 1}}))
    assert ledger.status() == {0: NumaStatus.IDLE, 1: NumaStatus.SINGLE}
    ledger.hold("wide", CpuHold(numa={0: {CPU: 1}, 1: {CPU: 1}}))
    assert ledger.status() == {0: NumaStatus.SHARED, 1: NumaStatus.SHARED}
