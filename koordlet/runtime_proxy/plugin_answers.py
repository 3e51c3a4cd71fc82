"""Answers of the NRI plugin to hooks of koord-runtime-proxy, so that both modes start containers alike."""

import logging
import threading
from collections.abc import Mapping
from typing import Protocol

from koordlet.nri import nri_pb2 as nri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.hook_types import HookType

_log = logging.getLogger(__name__)


class PluginHandle(Protocol):
    """The plugin's answer to one call of a runtime, as in `koordlet.nri.plugin.Plugin`; one thread at a time."""

    def handle(self, method: str, payload: bytes) -> bytes | None:
        """Return the serialized answer."""


class PluginAnswers:
    """Rules of the plugin over the messages of RuntimeHookService, which carry neither mounts nor devices."""

    def __init__(self, plugin: PluginHandle) -> None:
        self._plugin = plugin
        self._lock = threading.Lock()
        self._is_incomplete_said = False

    def change_pod(self, hook: HookType, asked: pb.PodSandboxHookRequest, _answer: pb.PodSandboxHookResponse) -> None:
        """Let the plugin set up the pod's cgroup; the kubelet made it before it runs the sandbox."""
        if hook is not HookType.PRE_RUN_POD_SANDBOX:
            return
        pod = _pod(asked.pod_meta, asked.labels, asked.annotations, asked.cgroup_parent)
        self._handle("RunPodSandbox", nri.PodRequest(pod=pod).SerializeToString())

    def change_container(
        self, hook: HookType, asked: pb.ContainerResourceHookRequest, answer: pb.ContainerResourceHookResponse
    ) -> None:
        """Merge the plugin's adjustment or update into the answer."""
        pod = _pod(asked.pod_meta, asked.pod_labels, asked.pod_annotations, asked.pod_cgroup_parent)
        present = _nri_resources(asked.container_resources)
        container = nri.Container(
            id=asked.container_meta.id,
            name=asked.container_meta.name,
            annotations=asked.container_annotations,
            env=[f"{key}={value}" for key, value in asked.container_envs.items()],
            linux=nri.LinuxContainer(resources=present),
        )
        if hook is HookType.PRE_CREATE_CONTAINER:
            request = nri.CreateContainerRequest(pod=pod, container=container)
            data = self._handle("CreateContainer", request.SerializeToString())
            self._adjust(nri.CreateContainerResponse.FromString(data).adjust, answer, container.name)
        elif hook is HookType.PRE_UPDATE_CONTAINER_RESOURCES:
            change = nri.UpdateContainerRequest(pod=pod, container=container, linux_resources=present)
            data = self._handle("UpdateContainer", change.SerializeToString())
            for update in nri.UpdateContainerResponse.FromString(data).update:
                _merge(update.linux.resources, answer.container_resources)

    def _adjust(self, adjust: nri.ContainerAdjustment, answer: pb.ContainerResourceHookResponse, name: str) -> None:
        if adjust.linux.HasField("resources"):
            _merge(adjust.linux.resources, answer.container_resources)
        if adjust.linux.HasField("oom_score_adj"):
            answer.container_resources.oom_score_adj = adjust.linux.oom_score_adj.value
        for pair in adjust.env:
            answer.container_envs[pair.key] = pair.value
        is_incomplete = bool(adjust.mounts or adjust.linux.devices or adjust.linux.HasField("rdt"))
        if is_incomplete and not self._is_incomplete_said:
            self._is_incomplete_said = True
            _log.warning("container %s: mounts, devices and resctrl groups do not pass the proxy; use NRI", name[:200])

    def _handle(self, method: str, payload: bytes) -> bytes:
        with self._lock:
            return self._plugin.handle(method, payload) or b""


def _pod(
    meta: pb.PodSandboxMetadata, labels: Mapping[str, str], annotations: Mapping[str, str], cgroup_parent: str
) -> nri.PodSandbox:
    return nri.PodSandbox(
        name=meta.name,
        uid=meta.uid,
        namespace=meta.namespace,
        labels=labels,
        annotations=annotations,
        linux=nri.LinuxPodSandbox(cgroup_parent=cgroup_parent),
    )


def _nri_resources(resources: pb.LinuxContainerResources) -> nri.LinuxResources:
    found = nri.LinuxResources(unified=resources.unified)
    if resources.cpu_shares:
        found.cpu.shares.value = resources.cpu_shares
    if resources.cpu_quota:
        found.cpu.quota.value = resources.cpu_quota
    if resources.cpu_period:
        found.cpu.period.value = resources.cpu_period
    found.cpu.cpus = resources.cpuset_cpus
    if resources.memory_limit_in_bytes:
        found.memory.limit.value = resources.memory_limit_in_bytes
    return found


def _merge(decided: nri.LinuxResources, answer: pb.LinuxContainerResources) -> None:
    if decided.cpu.HasField("shares"):
        answer.cpu_shares = decided.cpu.shares.value
    if decided.cpu.HasField("quota"):
        answer.cpu_quota = decided.cpu.quota.value
    if decided.cpu.HasField("period"):
        answer.cpu_period = decided.cpu.period.value
    if decided.cpu.cpus:
        answer.cpuset_cpus = decided.cpu.cpus
    if decided.memory.HasField("limit"):
        answer.memory_limit_in_bytes = decided.memory.limit.value
    answer.unified.update(decided.unified)
