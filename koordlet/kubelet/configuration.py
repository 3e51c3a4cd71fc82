"""Configuration of the kubelet as far as the agent respects it: from /configz, its file, or the cgroup tree. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from api.kube.meta import Quantity, Wire
from api.kube.resources import QuantityError, Resources, parse_resources

CgroupDriver = Literal["cgroupfs", "systemd"]
Source = Literal["configz", "file", "tree", "runtime"]


class ConfigurationError(ValueError):
    """A document that is no configuration of a kubelet; the message names its source and the key."""


class _Document(Wire, frozen=True):
    """KubeletConfiguration (kubelet.config.k8s.io/v1beta1), in part; the defaults are the kubelet's own."""

    cgroup_root: str = ""
    cgroup_driver: str = "cgroupfs"
    cgroups_per_qos: bool = msgspec.field(default=True, name="cgroupsPerQOS")
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = msgspec.field(default_factory=dict)
    memory_manager_policy: str = "None"
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    system_reserved: dict[str, Quantity] = msgspec.field(default_factory=dict)
    qos_reserved: dict[str, str] = msgspec.field(default_factory=dict)
    kube_reserved: dict[str, Quantity] = msgspec.field(default_factory=dict)
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    cpu_cfs_quota: bool = msgspec.field(default=True, name="cpuCFSQuota")
    container_runtime_endpoint: str = ""


class _Configz(Wire, frozen=True):
    kubelet_config: _Document = msgspec.field(name="kubeletconfig")


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """Configuration of the kubelet; names and defaults are those of KubeletConfiguration."""

    source: Source = "configz"
    cgroup_root: str = "/"
    """Cgroup below which the kubelet makes `kubepods`, written as for the cgroupfs driver."""
    cgroup_driver: CgroupDriver = "cgroupfs"
    cgroups_per_qos: bool = True
    """False: the kubelet makes no cgroups of pods at all."""
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    reserved_system_cpus: str = ""
    """CPU list that no pod with exclusive CPUs gets."""
    system_reserved: Mapping[str, int] = field(default_factory=dict)
    """Amounts by resource name as in `api.kube.resources`; empty where one is malformed."""
    kube_reserved: Mapping[str, int] = field(default_factory=dict)
    qos_reserved: Mapping[str, str] = field(default_factory=dict)
    """Share of a resource that is kept for the requests of higher QoS classes; the kubelet then writes their limits."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Gates that differ from the defaults of the kubelet's version."""
    cpu_cfs_quota: bool = True
    """Whether the kubelet writes CPU quotas."""
    container_runtime_endpoint: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the kubelet or its file says so; else what is not about the tree's layout is a default."""
        return self.source in ("configz", "file")

    @property
    def static_cpus(self) -> bool:
        """Whether the CPU manager writes cpusets."""
        return self.cpu_manager_policy == "static"

    @property
    def static_memory(self) -> bool:
        """Whether the memory manager writes cpuset.mems."""
        return self.memory_manager_policy == "Static"

    @property
    def memory_qos(self) -> bool:
        """Whether the kubelet writes memory.min, memory.low and memory.high."""
        return self.feature_gates.get("MemoryQoS", self.feature_gates.get("AllAlpha", False))


def of_configz(body: bytes) -> KubeletConfig:
    """Return the configuration in an answer of /configz. Raises ConfigurationError."""
    return _config(_converted(_json(body, "/configz"), _Configz, "/configz").kubelet_config, "configz")


def of_file(text: str, name: str) -> KubeletConfig:
    """Return the configuration in a file, YAML or JSON. Raises ConfigurationError."""
    try:
        document = msgspec.yaml.decode(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name}: not readable: {error}") from error
    if not isinstance(document, dict) or document.get("kind", "KubeletConfiguration") != "KubeletConfiguration":
        raise ConfigurationError(f"{name}: kind: is not KubeletConfiguration")
    return _config(_converted(document, _Document, name), "file")


def _config(document: _Document, source: Source) -> KubeletConfig:
    return KubeletConfig(
        source=source,
        cgroup_root="/" + document.cgroup_root.strip("/"),
        cgroup_driver="systemd" if document.cgroup_driver == "systemd" else "cgroupfs",
        cgroups_per_qos=document.cgroups_per_qos,
        cpu_manager_policy=document.cpu_manager_policy,
        cpu_manager_policy_options=document.cpu_manager_policy_options,
        memory_manager_policy=document.memory_manager_policy,
        topology_manager_policy=document.topology_manager_policy,
        topology_manager_scope=document.topology_manager_scope,
        reserved_system_cpus=document.reserved_system_cpus,
        system_reserved=_amounts(document.system_reserved),
        kube_reserved=_amounts(document.kube_reserved),
        qos_reserved=document.qos_reserved,
        feature_gates=document.feature_gates,
        cpu_cfs_quota=document.cpu_cfs_quota,
        container_runtime_endpoint=document.container_runtime_endpoint,
    )


ROOTS = ("/", "/kubelet")
"""Cgroup roots to look below without a configuration: the kubelet's default, and KinD's."""
DRIVERS: tuple[CgroupDriver, ...] = ("systemd", "cgroupfs")


def of_tree(
    exists: Callable[[KubeletConfig], bool], runtime_driver: CgroupDriver | None = None
) -> KubeletConfig | None:
    """Return a configuration whose `kubepods` cgroup exists; None where there is none. All else has its default.

    The driver that the runtime reports goes first: kubelets since 1.28 take that one.
    """
    drivers: Sequence[CgroupDriver] = DRIVERS if runtime_driver is None else (runtime_driver,)
    source: Source = "tree" if runtime_driver is None else "runtime"
    tried = (KubeletConfig(source=source, cgroup_root=root, cgroup_driver=each) for root in ROOTS for each in drivers)
    return next(filter(exists, tried), None)


def fitted(config: KubeletConfig, exists: Callable[[KubeletConfig], bool]) -> KubeletConfig:
    """Return the configuration with the driver whose `kubepods` cgroup exists: a file may lack the driver, which the
    kubelet then takes from the runtime."""
    if exists(config):
        return config
    others = (replace(config, cgroup_driver=driver) for driver in DRIVERS)
    return next(filter(exists, others), config)


def _json(body: bytes, name: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{name}: not JSON: {error}") from error


def _converted(document: Any, kind: type[Any], name: str) -> Any:
    try:
        return msgspec.convert(without_nulls(document), kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def without_nulls(document: Any) -> Any:
    """Return a document without keys whose value is null: Go writes these for what is unset."""
    if isinstance(document, dict):
        return {key: without_nulls(value) for key, value in document.items() if value is not None}
    if isinstance(document, list):
        return [without_nulls(value) for value in document if value is not None]
    return document


def _amounts(quantities: Mapping[str, Quantity]) -> Resources:
    try:
        return parse_resources(quantities)
    except QuantityError:
        return {}
