"""Pods and containers that started before this proxy, asked from the runtime."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from grpc import aio

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy.forwarding import Backend
from koordlet.runtime_proxy.pod_store import (
    ContainerEntry,
    PodEntry,
    PodStore,
    hook_resources,
    listed_container,
    listed_pod,
)

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0
_METHOD = "/runtime.v1.RuntimeService/"


class Inventory:
    """The store, completed from the runtime's lists where an entry is missing."""

    def __init__(self, backend: Backend, store: PodStore) -> None:
        self.store = store
        self._backend = backend

    async def refresh(self) -> None:
        """Add what the runtime lists, and drop what it does not. Raises AioRpcError."""
        known = self.store.ids()
        pods = await self._pods(cri.ListRequest())
        containers = await self._containers(cri.ListRequest())
        for pod in pods:
            self.store.pods.setdefault(pod.id, listed_pod(pod))
        for container in containers:
            self._add(container)
        self.store.keep(known, {pod.id for pod in pods} | {container.id for container in containers})

    async def pod(self, pod_id: str) -> PodEntry | None:
        """Return the pod, with its cgroup parent if the runtime tells it; None if the runtime has no such pod."""
        entry = self.store.pods.get(pod_id)
        try:
            if entry is None and pod_id:
                for pod in await self._pods(cri.ListRequest(filter=cri.IdFilter(id=pod_id))):
                    if pod.id == pod_id:
                        entry = self.store.pods.setdefault(pod.id, listed_pod(pod))
            if entry and not entry.is_complete:
                request = cri.StatusRequest(id=pod_id, verbose=True)
                status = cri.PodSandboxStatusResponse.FromString(await self._call("PodSandboxStatus", request))
                entry.asked.cgroup_parent = cgroup_parent_of(status.info)
                entry.is_complete = True
        except (aio.AioRpcError, DecodeError) as error:
            _log.warning("pod sandbox %s: not known from the runtime: %s", pod_id[:64], _cause(error))
        return entry

    async def container(self, container_id: str) -> ContainerEntry | None:
        """Return the container, with its resources if the runtime tells them; None if it has no such container."""
        entry = self.store.containers.get(container_id)
        try:
            if entry is None and container_id:
                for container in await self._containers(cri.ListRequest(filter=cri.IdFilter(id=container_id))):
                    if container.id == container_id and await self.pod(container.pod_sandbox_id):
                        entry = self._add(container)
            if entry and not entry.is_complete:
                if pod := await self.pod(entry.pod_id):
                    entry.asked.pod_cgroup_parent = pod.asked.cgroup_parent
                request = cri.StatusRequest(id=container_id)
                status = cri.ContainerStatusResponse.FromString(await self._call("ContainerStatus", request))
                entry.asked.container_resources.CopyFrom(hook_resources(status.status.resources.linux))
                entry.is_complete = True
        except (aio.AioRpcError, DecodeError) as error:
            _log.warning("container %s: not known from the runtime: %s", container_id[:64], _cause(error))
        return entry

    def _add(self, container: cri.Container) -> ContainerEntry | None:
        pod = self.store.pods.get(container.pod_sandbox_id)
        if pod is None:
            return None
        return self.store.containers.setdefault(container.id, listed_container(container, pod))

    async def _pods(self, request: cri.ListRequest) -> list[cri.PodSandbox]:
        return list(cri.ListPodSandboxResponse.FromString(await self._call("ListPodSandbox", request)).items)

    async def _containers(self, request: cri.ListRequest) -> list[cri.Container]:
        return list(cri.ListContainersResponse.FromString(await self._call("ListContainers", request)).containers)

    async def _call(self, name: str, request: cri.ListRequest | cri.StatusRequest) -> bytes:
        return await self._backend.call(_METHOD + name, request.SerializeToString(), _TIMEOUT_SECONDS)


def cgroup_parent_of(info: Mapping[str, str]) -> str:
    """Return the cgroup parent in a sandbox's verbose status, as containerd writes it; empty where there is none."""
    try:
        value: Any = msgspec.json.decode(info.get("info", "{}"))
    except msgspec.DecodeError:
        return ""
    for key in ("config", "linux", "cgroup_parent"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _cause(error: Exception) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, aio.AioRpcError) else str(error)
