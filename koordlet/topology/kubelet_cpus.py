"""CPUs that the kubelet's CPU manager holds: its configuration, and its state file. Pure.

The state file is the kubelet's own checkpoint: a default set, and for each pod the sets of its containers. It exists
with policy `none` too, then without entries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from api.cpuset import parse_cpuset
from api.kube.numa import CpuDetail
from api.kube.resources import CPU

STATIC = "static"
STATE_FILE = "cpu_manager_state"
"""Name of the state file in the kubelet's root directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletCpus:
    """The kubelet's CPU manager at one moment; the defaults are those of a kubelet that leaves CPUs alone."""

    policy: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    reserved: frozenset[int] = frozenset()
    """CPUs that no pod gets for itself. Shared pods run there, so they stay in the share pools."""
    exclusive: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Uid of a pod to the CPUs that it has for itself."""
    alignment: str = "None"
    """Topology manager's policy as NodeResourceTopology spells it."""

    @property
    def static(self) -> bool:
        """Whether the kubelet gives CPUs to pods."""
        return self.policy == STATIC


NO_KUBELET = KubeletCpus()


class KubeletConfiguration(Protocol):
    """The parts of a KubeletConfiguration that concern CPUs; amounts as in `api.kube.resources`."""

    @property
    def cpu_manager_policy(self) -> str: ...
    @property
    def cpu_manager_policy_options(self) -> Mapping[str, str]: ...
    @property
    def topology_manager_policy(self) -> str: ...
    @property
    def topology_manager_scope(self) -> str: ...
    @property
    def reserved_system_cpus(self) -> str: ...
    @property
    def system_reserved(self) -> Mapping[str, int]: ...
    @property
    def kube_reserved(self) -> Mapping[str, int]: ...


def kubelet_cpus(
    configuration: KubeletConfiguration | None, exclusive: Mapping[str, frozenset[int]], cpus: Sequence[CpuDetail]
) -> KubeletCpus:
    """Return the CPU manager of a kubelet with this configuration; None is a host without a kubelet.

    Under the static policy the reserved CPUs are those that are named, else as many of the lowest cores as the
    reserved amounts need.
    """
    if configuration is None:
        return NO_KUBELET
    reserved: frozenset[int] = frozenset()
    if configuration.cpu_manager_policy == STATIC:
        try:
            reserved = parse_cpuset(configuration.reserved_system_cpus)
        except ValueError:
            reserved = frozenset()
        amounts = configuration.kube_reserved.get(CPU, 0) + configuration.system_reserved.get(CPU, 0)
        reserved = reserved or lowest_cores(cpus, amounts)
    return KubeletCpus(
        policy=configuration.cpu_manager_policy,
        options=configuration.cpu_manager_policy_options,
        reserved=reserved,
        exclusive=exclusive,
        alignment=alignment(configuration.topology_manager_policy, configuration.topology_manager_scope),
    )


_ALIGNED = {"best-effort": "BestEffort", "restricted": "Restricted", "single-numa-node": "SingleNUMANode"}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}
NO_ALIGNMENT = "None"


def alignment(policy: str, scope: str) -> str:
    """Return the topology manager's policy as NodeResourceTopology spells it: `SingleNUMANodePodLevel`."""
    if policy not in _ALIGNED or scope not in _SCOPES:
        return NO_ALIGNMENT
    return _ALIGNED[policy] + _SCOPES[scope]


class StateError(ValueError):
    """A state file that cannot be read; the message says why."""


class _State(msgspec.Struct, frozen=True, rename="camel"):
    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] = {}


def exclusive_cpus(text: str) -> Mapping[str, frozenset[int]]:
    """Return the CPUs of each pod in the content of a state file; pods without any are left out. Raises StateError."""
    try:
        state = msgspec.json.decode(text, type=_State)
        sets = {
            uid: frozenset().union(*(parse_cpuset(cpus) for cpus in containers.values()))
            for uid, containers in state.entries.items()
        }
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StateError(str(error)) from error
    return {uid: cpus for uid, cpus in sets.items() if cpus}


def lowest_cores(cpus: Sequence[CpuDetail], millicores: int) -> frozenset[int]:
    """Return the CPUs that the kubelet keeps for `millicores`: whole NUMA nodes, then cores, then threads, lowest
    first, rounded up to whole CPUs. With threads (0,4)(1,5)(2,6)(3,7), 2000 give 0 and 4."""
    missing = -(-max(millicores, 0) // 1000)
    taken: set[int] = set()
    for grouping in (_by_node, _by_core, _by_cpu):
        for group in grouping(cpus):
            free = group - taken
            if free and len(free) <= missing:
                taken |= free
                missing -= len(free)
    return frozenset(taken)


def _by_node(cpus: Sequence[CpuDetail]) -> list[set[int]]:
    return _grouped([((cpu.socket, cpu.node), cpu.id) for cpu in cpus])


def _by_core(cpus: Sequence[CpuDetail]) -> list[set[int]]:
    return _grouped([((cpu.socket, cpu.node, cpu.core), cpu.id) for cpu in cpus])


def _by_cpu(cpus: Sequence[CpuDetail]) -> list[set[int]]:
    return _grouped([((cpu.socket, cpu.node, cpu.core, cpu.id), cpu.id) for cpu in cpus])


def _grouped(keyed: Sequence[tuple[tuple[int, ...], int]]) -> list[set[int]]:
    groups: dict[tuple[int, ...], set[int]] = {}
    for key, cpu in sorted(keyed):
        groups.setdefault(key, set()).add(cpu)
    return list(groups.values())
