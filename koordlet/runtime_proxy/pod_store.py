"""Pods and containers that hooks are told about, by the runtime's ids."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb


@dataclass(slots=True)
class PodEntry:
    """A pod sandbox, as the hook server was last asked about it."""

    asked: pb.PodSandboxHookRequest
    is_complete: bool
    """False where it comes from the runtime's list, which has neither cgroup parent nor resources."""
    stop_told: bool = False
    kubelet_cgroup_parent: str = ""
    """Cgroup parent that the kubelet sent and a hook replaced; empty where none did."""


@dataclass(slots=True)
class ContainerEntry:
    """A container, as the hook server was last asked about it."""

    pod_id: str
    asked: pb.ContainerResourceHookRequest
    is_complete: bool
    """False where it comes from the runtime's list, which has neither resources nor environment."""
    stop_told: bool = False


class PodStore:
    """Entries until their removal; ids that the runtime does not list are dropped by `keep`."""

    def __init__(self) -> None:
        self.pods: dict[str, PodEntry] = {}
        self.containers: dict[str, ContainerEntry] = {}

    def remove_pod(self, pod_id: str) -> None:
        """Forget a pod and its containers."""
        self.pods.pop(pod_id, None)
        for container_id in [each for each, entry in self.containers.items() if entry.pod_id == pod_id]:
            del self.containers[container_id]

    def keep(self, known: AbstractSet[str], listed: AbstractSet[str]) -> None:
        """Forget those of the `known` ids, which were stored before the list was made, that were not listed."""
        for gone in known - listed:
            self.pods.pop(gone, None)
            self.containers.pop(gone, None)

    def ids(self) -> frozenset[str]:
        """Return the ids of all pods and containers."""
        return frozenset(self.pods) | frozenset(self.containers)


def hook_resources(resources: cri.LinuxContainerResources) -> pb.LinuxContainerResources:
    """Return resources of the CRI as hooks have them: the same fields with the same numbers."""
    return pb.LinuxContainerResources.FromString(resources.SerializeToString())


def pod_of_config(config: cri.PodSandboxConfig, runtime_handler: str = "") -> pb.PodSandboxHookRequest:
    """Return the hook request of a pod's configuration."""
    asked = pb.PodSandboxHookRequest(
        pod_meta=_pod_meta(config.metadata),
        runtime_handler=runtime_handler,
        labels=config.labels,
        annotations=config.annotations,
        cgroup_parent=config.linux.cgroup_parent,
    )
    if config.linux.HasField("overhead"):
        asked.overhead.CopyFrom(hook_resources(config.linux.overhead))
    if config.linux.HasField("resources"):
        asked.resources.CopyFrom(hook_resources(config.linux.resources))
    return asked


def listed_pod(pod: cri.PodSandbox) -> PodEntry:
    """Return the entry of a pod that the runtime lists."""
    return PodEntry(
        pb.PodSandboxHookRequest(
            pod_meta=_pod_meta(pod.metadata),
            runtime_handler=pod.runtime_handler,
            labels=pod.labels,
            annotations=pod.annotations,
        ),
        is_complete=False,
    )


def listed_container(container: cri.Container, pod: PodEntry) -> ContainerEntry:
    """Return the entry of a container that the runtime lists."""
    asked = container_request(pod.asked)
    asked.container_meta.name = container.metadata.name
    asked.container_meta.attempt = container.metadata.attempt
    asked.container_meta.id = container.id
    asked.container_annotations.update(container.annotations)
    return ContainerEntry(container.pod_sandbox_id, asked, is_complete=False)


def container_request(pod: pb.PodSandboxHookRequest) -> pb.ContainerResourceHookRequest:
    """Return a container's hook request with the fields of its pod."""
    asked = pb.ContainerResourceHookRequest(
        pod_meta=pod.pod_meta,
        pod_annotations=pod.annotations,
        pod_labels=pod.labels,
        pod_cgroup_parent=pod.cgroup_parent,
    )
    if pod.HasField("resources"):
        asked.pod_resources.CopyFrom(pod.resources)
    return asked


def _pod_meta(metadata: cri.PodSandboxMetadata) -> pb.PodSandboxMetadata:
    return pb.PodSandboxMetadata.FromString(metadata.SerializeToString())
