"""Objects of the simulated cluster as its real components read them."""

from collections.abc import Sequence

from api.crds.node_metric import NodeMetric, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from api.kube.interference import EXTENSION_INTERFERENCE
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from api.protocol import BATCH_CPU, LABEL_QOS_CLASS, SCHEDULER_NAME
from bench.closed_loop.world import CORES, MEMORY
from controllers.descheduler.kinds import WorkloadObject, WorkloadSpec, WorkloadStatus

NAMESPACE = "loop"
HOSTNAME = "kubernetes.io/hostname"
BATCH_PRIORITY, SERVICE_PRIORITY = 5500, 9500
_SYSTEM = ResourceMap()
_POD_MEMORY, _NODE_MEMORY = "64Mi", "1Gi"


def path_of(workload: str) -> str:
    """Return a workload as verdicts name it."""
    return f"StatefulSet/{NAMESPACE}/{workload}"


def a_pod(uid: str, workload: str, *, cores: float = 0.0, batch_cores: int = 0, node: str = "") -> Pod:
    """Return a pending pod of a service, or of batch work where `batch_cores` are asked for; for one node if named."""
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name=workload, uid=workload, controller=True)
    requests: dict[str, str | int | float] = {BATCH_CPU: batch_cores * 1000}
    if not batch_cores:
        requests = {"cpu": f"{cores * 1000:.0f}m", "memory": 2 << 30}
    labels = {LABEL_QOS_CLASS: "BE" if batch_cores else "LS"}
    return Pod(
        metadata=ObjectMeta(name=uid, namespace=NAMESPACE, uid=uid, labels=labels, owner_references=[owner]),
        spec=PodSpec(
            containers=[Container(name="main", resources=ResourceRequirements(requests=requests))],
            scheduler_name=SCHEDULER_NAME,
            priority=BATCH_PRIORITY if batch_cores else SERVICE_PRIORITY,
            node_selector={HOSTNAME: node} if node else {},
        ),
    )


def a_node(number: int, batch_millicores: int) -> Node:
    """Return a node that sells batch CPUs."""
    amounts: dict[str, str | int | float] = {
        "cpu": f"{CORES * 1000}m",
        "memory": MEMORY,
        "pods": 256,
        BATCH_CPU: batch_millicores,
    }
    return Node(
        metadata=ObjectMeta(name=f"n{number}", labels={HOSTNAME: f"n{number}"}),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


def a_workload(name: str, replicas: int) -> WorkloadObject:
    """Return a StatefulSet at rest."""
    return WorkloadObject(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name),
        spec=WorkloadSpec(replicas=replicas),
        status=WorkloadStatus(replicas=replicas),
    )


def a_report(name: str, cores: float, lost: float, culprits: list[str], shares: list[float], until: str) -> PodUsage:
    """Return a pod's part of a report; with a verdict where it loses time, in seconds a second."""
    extensions = None
    if lost:
        verdict = {
            "resource": "cpu",
            "culprits": culprits,
            "shares": shares,
            "lostSecondsPerSecond": lost,
            "until": until,
        }
        extensions = {EXTENSION_INTERFERENCE: {"verdicts": [verdict]}}
    return PodUsage(
        name=name,
        namespace=NAMESPACE,
        pod_usage=ResourceMap(resources={"cpu": f"{1000 * cores:.0f}m", "memory": _POD_MEMORY}),
        qos="LS" if name.startswith("s") else "BE",
        extensions=extensions,
    )


def a_metric(node: int, stamp: str, cores: float, pods: Sequence[PodUsage]) -> NodeMetric:
    """Return a node's report."""
    used = ResourceMap(resources={"cpu": f"{1000 * cores:.0f}m", "memory": _NODE_MEMORY})
    status = NodeMetricStatus(
        update_time=stamp, node_metric=NodeUsage(node_usage=used, system_usage=_SYSTEM), pods_metric=list(pods)
    )
    return NodeMetric(metadata=ObjectMeta(name=f"n{node}"), status=status)
