"""Allocatable amounts and bound CPUs of a node without the cluster: from settings and cpusets. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from api.cpuset import parse_cpuset
from api.intents import Knob
from api.kube.resources import CPU, MEMORY
from api.qos import QoSClass
from koordlet.strategies.view import Group, GroupKind

_BINDING = (QoSClass.LSE, QoSClass.LSR)
"""Classes with exclusive CPUs."""


def allocatable(
    capacity: Mapping[str, int], reserved: Mapping[str, int], configured: Mapping[str, int]
) -> Mapping[str, int]:
    """Return the configured amounts; cpu and memory default to the capacity less the reserved part."""
    defaults = {name: max(capacity[name] - reserved.get(name, 0), 0) for name in (CPU, MEMORY) if capacity.get(name)}
    return {**defaults, **configured}


def with_bound_cpus(groups: Sequence[Group], cpus: frozenset[int]) -> tuple[Group, ...]:
    """Return the groups, those of class LSE or LSR with the CPUs of their cpuset, or of their containers' cpusets.

    A list of all the node's `cpus` binds nothing.
    """
    own = {group.path: _listed(group, cpus) for group in groups if group.qos in _BINDING}
    for group in groups:
        if group.kind is GroupKind.CONTAINER and group.path in own and group.pod in own:
            own[group.pod] |= own[group.path]
    return tuple(replace(group, bound_cpus=own[group.path]) if own.get(group.path) else group for group in groups)


def _listed(group: Group, cpus: frozenset[int]) -> frozenset[int]:
    try:
        listed = parse_cpuset(group.knobs.get(Knob.CPUSET_CPUS, "")) & cpus
    except ValueError:
        return frozenset()
    return frozenset() if listed == cpus else listed
