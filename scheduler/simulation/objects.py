"""Shapes of a trace as the API objects that the engine takes."""

from api.kube.device import Device, DeviceInfo, DeviceSpec, DeviceTopology
from api.kube.meta import LabelSelectorRequirement, ObjectMeta
from api.kube.objects import Affinity, Container, Node, NodeAffinity, NodeStatus, Pod, PodSpec, ResourceRequirements
from api.kube.selectors import NodeSelector, NodeSelectorTerm
from api.protocol import GPU, GPU_CORE, GPU_MEMORY_RATIO, LABEL_QOS_CLASS, SCHEDULER_NAME
from scheduler.simulation.trace import NodeShape, PodShape

LABEL_MODEL = "node.koordinator.sh/gpu-model"
GPUS_PER_NUMA_NODE = 4
GPUS_PER_SWITCH = 2
PODS_PER_NODE = 256


def node_object(shape: NodeShape) -> Node:
    """The Node of a shape; GPUs are offered under Koordinator's names."""
    allocatable: dict[str, str | int | float] = {
        "cpu": f"{shape.cpu_millicores}m",
        "memory": shape.memory_bytes,
        "pods": PODS_PER_NODE,
    }
    if shape.gpus:
        allocatable |= dict.fromkeys((GPU, GPU_CORE, GPU_MEMORY_RATIO), 100 * shape.gpus)
    labels = {"kubernetes.io/hostname": shape.name} | ({LABEL_MODEL: shape.model} if shape.model else {})
    return Node(
        metadata=ObjectMeta(name=shape.name, labels=labels),
        status=NodeStatus(capacity=allocatable, allocatable=allocatable),
    )


def device_object(shape: NodeShape) -> Device:
    """The Device object of a shape: healthy GPUs, two to a switch, four to a NUMA node."""
    gpus = [
        DeviceInfo(
            type="gpu",
            minor=minor,
            health=True,
            resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100},
            topology=DeviceTopology(node_id=minor // GPUS_PER_NUMA_NODE, pcie_id=f"switch-{minor // GPUS_PER_SWITCH}"),
        )
        for minor in range(shape.gpus)
    ]
    return Device(metadata=ObjectMeta(name=shape.name), spec=DeviceSpec(devices=gpus))


def pod_object(shape: PodShape, uid: str, *, namespace: str = "trace", priority: int | None = None) -> Pod:
    """The pending Pod of a shape; pods of equal shape make one scheduling class."""
    requests: dict[str, str | int | float] = {"cpu": f"{shape.cpu_millicores}m", "memory": shape.memory_bytes}
    if shape.gpus:
        requests[GPU] = shape.total_gpu_percent
    labels = {LABEL_QOS_CLASS: shape.qos} if shape.qos in ("LS", "BE") else {}
    affinity = None
    if shape.models:
        wanted = LabelSelectorRequirement(key=LABEL_MODEL, operator="In", values=list(shape.models))
        term = NodeSelectorTerm(match_expressions=[wanted])
        affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[term])))
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(name=uid, namespace=namespace, uid=uid, labels=labels),
        spec=PodSpec(containers=[container], scheduler_name=SCHEDULER_NAME, affinity=affinity, priority=priority),
    )
