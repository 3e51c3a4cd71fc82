"""State of a machine in the words of Koordinator's diagnosis API."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from api.cpuset import format_cpuset
from api.kube.resources import format_resources
from scheduler.numa.machine import Machine
from scheduler.numa.topology import CpuExclusivePolicy


def topology_options(machine: Machine) -> dict[str, Any]:
    """Answer of `cpuTopologyOptions`: the machine's CPUs and what is kept from pods."""
    shape = machine.shape
    cpus = shape.topology.cpus.values()
    return {
        "cpuTopology": {
            "numCPUs": len(cpus),
            "numCores": len({cpu.core for cpu in cpus}),
            "numNodes": len({cpu.node for cpu in cpus}),
            "numSockets": len({cpu.socket for cpu in cpus}),
            "cpuDetails": _details(machine, shape.topology.cpus),
        },
        "reservedCPUs": format_cpuset(shape.withheld),
        "numaNodeResources": [
            {"node": node, "resources": format_resources(amounts)} for node, amounts in sorted(shape.numa.items())
        ],
    }


def available_cpus(machine: Machine) -> dict[str, Any]:
    """Answer of `availableCPUs`: CPUs that may be given, and those that pods hold."""
    return {"availableCPUs": format_cpuset(machine.free), "allocated": _details(machine, sorted(machine.allocated))}


def _details(machine: Machine, numbers: Iterable[int]) -> dict[str, Any]:
    """Place of each CPU, the pods that hold it, and how exclusively."""
    users = Counter(number for hold in machine.holders.values() for number in hold.cpus)
    policies = {number: hold.exclusive for hold in machine.holders.values() for number in hold.cpus}
    known = machine.shape.topology.cpus
    return {
        str(number): {
            "cpuID": cpu.id,
            "coreID": cpu.core,
            "nodeID": cpu.node,
            "socketID": cpu.socket,
            "refCount": users[number],
            "exclusivePolicy": policies.get(number, CpuExclusivePolicy.NONE).value,
        }
        for number in numbers
        if (cpu := known.get(number)) is not None
    }
