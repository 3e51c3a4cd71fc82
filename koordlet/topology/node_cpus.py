"""CPUs that the node's annotations keep back: its reservation, and those of the system class. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from api.cpuset import parse_cpuset
from api.kube.numa import CpuDetail, NodeReservation, SystemQosResource
from api.kube.resources import CPU, parse_resources
from api.protocol import (
    ANNOTATION_NODE_CPU_NORMALIZATION_RATIO,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NODE_SYSTEM_QOS_RESOURCE,
)
from koordlet.topology.kubelet_cpus import lowest_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCpus:
    """What the node's annotations say of its CPUs."""

    reserved: frozenset[int] = frozenset()
    """CPUs kept from all pods."""
    reserved_amounts: Mapping[str, int] = field(default_factory=dict)
    """Amounts kept from all pods, by resource name; those of named CPUs under `ReservedCPUsOnly` do not count."""
    system: frozenset[int] = frozenset()
    """CPUs of the system class."""
    system_exclusive: bool = True
    """Whether no other class may run on these."""
    normalization_ratio: float = 1.0
    """Speed of a core over that of the cores which limits are meant for."""
    unreadable: tuple[str, ...] = ()
    """Annotations that were passed over because they cannot be read."""

    @property
    def withheld(self) -> frozenset[int]:
        """CPUs in no share pool."""
        return self.reserved | (self.system if self.system_exclusive else frozenset())


PLAIN_NODE = NodeCpus()


def node_cpus(annotations: Mapping[str, str], cpus: Sequence[CpuDetail]) -> NodeCpus:
    """Return what the annotations of a node say; one that cannot be read counts as absent."""
    known = frozenset(cpu.id for cpu in cpus)
    unreadable: list[str] = []
    reserved: frozenset[int] = frozenset()
    amounts: Mapping[str, int] = {}
    system: frozenset[int] = frozenset()
    exclusive, ratio = True, 1.0
    if text := annotations.get(ANNOTATION_NODE_RESERVATION):
        try:
            reservation = msgspec.json.decode(text, type=NodeReservation)
            reserved, amounts = _reserved(reservation, cpus) & known, _reserved_amounts(reservation)
        except (msgspec.DecodeError, ValueError, RecursionError):
            unreadable.append(ANNOTATION_NODE_RESERVATION)
    if text := annotations.get(ANNOTATION_NODE_SYSTEM_QOS_RESOURCE):
        try:
            resource = msgspec.json.decode(text, type=SystemQosResource)
            system, exclusive = parse_cpuset(resource.cpuset), resource.cpuset_exclusive
        except (msgspec.DecodeError, ValueError, RecursionError):
            unreadable.append(ANNOTATION_NODE_SYSTEM_QOS_RESOURCE)
    if text := annotations.get(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO):
        try:
            ratio = _ratio(text)
        except ValueError:
            unreadable.append(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO)
    return NodeCpus(
        reserved=reserved,
        reserved_amounts=amounts,
        system=system & known,
        system_exclusive=exclusive,
        normalization_ratio=ratio,
        unreadable=tuple(unreadable),
    )


def _reserved(reservation: NodeReservation, cpus: Sequence[CpuDetail]) -> frozenset[int]:
    """Named CPUs, else as many of the lowest cores as the amount needs."""
    if reservation.reserved_cpus:
        return parse_cpuset(reservation.reserved_cpus)
    return lowest_cores(cpus, parse_resources(reservation.resources).get(CPU, 0))


def _reserved_amounts(reservation: NodeReservation) -> Mapping[str, int]:
    if reservation.apply_policy == "ReservedCPUsOnly":
        return {}
    amounts = parse_resources(reservation.resources)
    named = parse_cpuset(reservation.reserved_cpus)
    return amounts | ({CPU: 1000 * len(named)} if named else {})


def _ratio(text: str) -> float:
    """Raises ValueError unless the text is a ratio from 1, which changes nothing, to 10."""
    ratio = float(text)
    if not 1.0 <= ratio <= 10.0:
        raise ValueError(f"no ratio of CPU speeds: {text!r}")
    return ratio
