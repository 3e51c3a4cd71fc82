"""CPUs and NUMA nodes on the wire: what a pod asks, what it was given, and what a node reports of its machine.

The pod annotations are `resource-spec` (asks), `resource-status` (was given; the node's agent enforces it) and
`numa-topology-spec`. A node's agent reports its machine on the NodeResourceTopology object of its name.
"""

import msgspec

from api.kube.meta import ObjectMeta, Quantity, Wire

ANNOTATION_CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
ANNOTATION_POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
ANNOTATION_KUBELET_CPU_MANAGER = "kubelet.koordinator.sh/cpu-manager-policy"
ANNOTATION_CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
ANNOTATION_BE_CPU_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
ANNOTATION_CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"


class ResourceSpec(Wire, frozen=True):
    """A pod's request for the layout of its CPUs; empty fields leave the choice to the scheduler."""

    required_cpu_bind_policy: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")


class NumaNodeResources(Wire, frozen=True):
    """Allocation of a pod on one NUMA node."""

    node: int
    resources: dict[str, Quantity] = {}


class ResourceStatus(Wire, frozen=True):
    """Allocation of a pod: its CPUs as a list, and its amounts by NUMA node."""

    cpuset: str = ""
    numa_node_resources: list[NumaNodeResources] = msgspec.field(default_factory=list, name="numaNodeResources")


class NumaTopologySpec(Wire, frozen=True):
    """A pod's own NUMA policy."""

    numa_topology_policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    single_numa_node_exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


class CpuDetail(Wire, frozen=True, omit_defaults=False):
    """One hardware thread: its number, core, socket and NUMA node."""

    id: int
    core: int = 0
    socket: int = 0
    node: int = 0


class CpuTopologyReport(Wire, frozen=True):
    """All hardware threads of a machine."""

    detail: list[CpuDetail] = []


class CpuSharedPool(Wire, frozen=True, omit_defaults=False):
    """CPUs of one NUMA node that pods without CPUs of their own share."""

    socket: int = 0
    node: int = 0
    cpuset: str = ""


class CpuBasicInfo(Wire, frozen=True, omit_defaults=False):
    """Kind of CPU of a machine; `cat_l3_cbm_mask` is hexadecimal without prefix, empty without cache allocation."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    cat_l3_cbm_mask: str = msgspec.field(default="", name="catL3CbmMask")
    vendor_id: str = msgspec.field(default="", name="vendorID")


class NodeReservation(Wire, frozen=True):
    """The node's reservation annotation: amounts or CPUs kept from pods; named CPUs replace the cpu amount."""

    resources: dict[str, Quantity] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""


class SystemQosResource(Wire, frozen=True):
    """CPUs of the node's system class, and whether no other class may use them."""

    cpuset: str = ""
    cpuset_exclusive: bool = True


class PodCpuAllocation(Wire, frozen=True):
    """CPUs that a pod on the node has, by the kubelet or the scheduler."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class KubeletCpuManager(Wire, frozen=True):
    """The kubelet's CPU manager: its policy, options and the CPUs it keeps back."""

    policy: str = ""
    options: dict[str, str] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


class ZoneResource(Wire, frozen=True):
    """One resource of a zone."""

    name: str
    capacity: Quantity = 0
    allocatable: Quantity = 0
    available: Quantity = 0


class ZoneCost(Wire, frozen=True):
    """Distance to another zone."""

    name: str
    value: int


class ZoneAttribute(Wire, frozen=True):
    """A named property of a zone."""

    name: str
    value: str


class Zone(Wire, frozen=True):
    """One NUMA node, named like `node-0`."""

    name: str
    type: str = ""
    parent: str = ""
    costs: list[ZoneCost] = []
    attributes: list[ZoneAttribute] = []
    resources: list[ZoneResource] = []


class NodeResourceTopology(Wire, frozen=True):
    """topology.node.k8s.io NodeResourceTopology, cluster-scoped, named like its node.

    v1alpha1 has policies, v1alpha2 attributes; one struct holds both.
    """

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] = []
    attributes: list[ZoneAttribute] = []
    zones: list[Zone] = []
