"""Share pools: the CPUs left for pods without CPUs of their own. Pure.

    LS = all - exclusive by the kubelet - given by the scheduler - reserved by the node - exclusive to the system class
    BE = all - exclusive by the kubelet - given to LSE pods      - reserved by the node - exclusive to the system class

Best-effort pods may therefore run on the CPUs of LSR pods. The CPUs that the kubelet itself reserves stay in both
pools: were all others given away, shared pods would have none. Rule: Koordinator's NodeResourceTopology report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.cpuset import format_cpuset, parse_cpuset
from api.kube.numa import CpuDetail, CpuSharedPool, ResourceStatus
from api.kube.resources import CPU
from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.identity.pods import ContainerRole, PodFacts
from koordlet.topology.kubelet_cpus import NO_KUBELET, KubeletCpus
from koordlet.topology.node_cpus import PLAIN_NODE, NodeCpus

_NEVER_BOUND = (QoSClass.BE, QoSClass.SYSTEM)
"""Classes to which the scheduler gives no CPUs."""
_NOT_THE_KUBELETS = (QoSClass.LS, QoSClass.BE)
"""Classes whose pods run in a share pool even where the kubelet's state file lists CPUs for them."""


@dataclass(frozen=True, slots=True)
class SharePools:
    """The pools of both classes by NUMA node, in the order of socket and node; nodes without CPUs are left out."""

    ls: tuple[CpuSharedPool, ...] = ()
    be: tuple[CpuSharedPool, ...] = ()

    @property
    def ls_cpus(self) -> frozenset[int]:
        """All CPUs of the LS pool."""
        return _union(self.ls)

    @property
    def be_cpus(self) -> frozenset[int]:
        """All CPUs of the BE pool."""
        return _union(self.be)

    def ls_cpus_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """CPUs of the LS pool on some NUMA nodes."""
        wanted = set(nodes)
        return _union(pool for pool in self.ls if pool.node in wanted)

    def be_cpus_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """CPUs of the BE pool on some NUMA nodes."""
        wanted = set(nodes)
        return _union(pool for pool in self.be if pool.node in wanted)


def share_pools(
    cpus: Sequence[CpuDetail],
    kubelet: KubeletCpus = NO_KUBELET,
    pods: Iterable[PodFacts] = (),
    node: NodeCpus = PLAIN_NODE,
) -> SharePools:
    """Return the pools of a machine with these CPUs and pods."""
    pods = tuple(pods)
    kubelets = frozenset().union(*kubelet_held(kubelet, pods).values())
    shared = frozenset(cpu.id for cpu in cpus) - kubelets - node.withheld
    given = frozenset().union(*map(given_cpus, pods))
    given_to_lse = frozenset().union(*(given_cpus(pod) for pod in pods if pod.qos is QoSClass.LSE))
    return SharePools(_pools(cpus, shared - given), _pools(cpus, shared - given_to_lse))


def given_cpus(pod: PodFacts) -> frozenset[int]:
    """Return the CPUs that the scheduler gave a pod, by its annotation `resource-status`.

    The annotation is a claim of anyone who may create pods, so it counts up to what the pod requests: not for classes
    to which the scheduler gives no CPUs, nor where it names more CPUs than were requested, nor for pods that ended.
    """
    text = pod.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if not text or not _holds_cpus(pod) or pod.qos in _NEVER_BOUND:
        return frozenset()
    try:
        cpus = parse_cpuset(msgspec.json.decode(text, type=ResourceStatus).cpuset)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return frozenset()
    return cpus if len(cpus) * 1000 <= pod.requests.get(CPU, 0) else frozenset()


def _holds_cpus(pod: PodFacts) -> bool:
    """Whether a pod is there to use CPUs: one that is being deleted is until its last container ended."""
    return pod.active or any(each.running and each.role is not ContainerRole.SANDBOX for each in pod.containers)


def kubelet_held(kubelet: KubeletCpus, pods: Iterable[PodFacts]) -> Mapping[str, frozenset[int]]:
    """Return the CPUs by uid of the pods that the kubelet's static policy bound, without those that run by the
    scheduler's annotation or in a share pool."""
    if not kubelet.static:
        return {}
    others = {
        uid for pod in pods if pod.qos in _NOT_THE_KUBELETS or given_cpus(pod) for uid in (pod.uid, pod.cgroup_uid)
    }
    return {uid: cpus for uid, cpus in kubelet.exclusive.items() if uid not in others}


def _pools(cpus: Sequence[CpuDetail], members: frozenset[int]) -> tuple[CpuSharedPool, ...]:
    places: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        if cpu.id in members:
            places.setdefault((cpu.socket, cpu.node), []).append(cpu.id)
    return tuple(
        CpuSharedPool(socket=socket, node=node, cpuset=format_cpuset(ids))
        for (socket, node), ids in sorted(places.items())
    )


def _union(pools: Iterable[CpuSharedPool]) -> frozenset[int]:
    return frozenset().union(*(parse_cpuset(pool.cpuset) for pool in pools))
