"""Calls of the CRI that hooks belong to: decoded, put before the hook servers, and forwarded with their changes."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.forwarding import Backend, Context, remaining_seconds
from koordlet.runtime_proxy.hook_servers import HookFailed, HookServers
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.inventory import Inventory
from koordlet.runtime_proxy.merging import env_map, merge_container, merge_pod, merge_update
from koordlet.runtime_proxy.pod_store import (
    ContainerEntry,
    PodEntry,
    container_request,
    hook_resources,
    pod_of_config,
)

_log = logging.getLogger(__name__)

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
HookedCall = Callable[[bytes, Context], Awaitable[bytes]]
_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True, slots=True)
class SkipLabel:
    """Pods with this label are never put before hook servers."""

    key: str
    value: str


class HookedCalls:
    """The hooked methods; each takes a serialized request and returns the runtime's serialized response."""

    def __init__(self, backend: Backend, hooks: HookServers, inventory: Inventory, skip: SkipLabel) -> None:
        self._backend = backend
        self._hooks = hooks
        self._inventory = inventory
        self._store = inventory.store
        self._skip = skip

    def methods(self) -> dict[str, HookedCall]:
        """Return the calls by full gRPC method."""
        calls: dict[str, HookedCall] = {
            "RunPodSandbox": self._run_pod,
            "StopPodSandbox": self._stop_pod,
            "RemovePodSandbox": self._remove_pod,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "UpdateContainerResources": self._update_container,
            "StopContainer": self._stop_container,
            "RemoveContainer": self._remove_container,
        }
        return {f"/{RUNTIME_SERVICE}/{name}": call for name, call in calls.items()}

    async def _run_pod(self, data: bytes, context: Context) -> bytes:
        request = await self._decode(cri.RunPodSandboxRequest, data, context, HookType.PRE_RUN_POD_SANDBOX)
        if request is None:
            return await self._forward("RunPodSandbox", data, context)
        asked = pod_of_config(request.config, request.runtime_handler)
        parent, changed = asked.cgroup_parent, False

        def merge(answer: pb.PodSandboxHookResponse) -> None:
            nonlocal changed
            changed |= merge_pod(asked, answer, request.config)

        await self._ask_about_pod(HookType.PRE_RUN_POD_SANDBOX, asked, context, merge)
        response = await self._forward("RunPodSandbox", request.SerializeToString() if changed else data, context)
        if pod_id := _parse(cri.RunPodSandboxResponse, response).pod_sandbox_id:
            replaced = parent if asked.cgroup_parent != parent else ""
            self._store.pods[pod_id] = PodEntry(asked, is_complete=True, kubelet_cgroup_parent=replaced)
        return response

    async def _stop_pod(self, data: bytes, context: Context) -> bytes:
        response = await self._forward("StopPodSandbox", data, context)
        pod_id = _parse(cri.PodSandboxId, data).pod_sandbox_id
        hook = HookType.POST_STOP_POD_SANDBOX
        # The kubelet stops a pod more than once; a hook server that did not hear of it is told again.
        if self._hooks.any_of(hook) and (pod := await self._inventory.pod(pod_id)) and not pod.stop_told:
            pod.stop_told = await self._ask_about_pod(hook, pod.asked, context, lambda _answer: None)
        return response

    async def _remove_pod(self, data: bytes, context: Context) -> bytes:
        response = await self._forward("RemovePodSandbox", data, context)
        self._store.remove_pod(_parse(cri.PodSandboxId, data).pod_sandbox_id)
        return response

    async def _create_container(self, data: bytes, context: Context) -> bytes:
        request = await self._decode(cri.CreateContainerRequest, data, context, HookType.PRE_CREATE_CONTAINER)
        if request is None:
            return await self._forward("CreateContainer", data, context)
        pod = self._store.pods.get(request.pod_sandbox_id)
        if pod is None or not pod.is_complete:
            # Started before this proxy: the kubelet sends the pod's configuration once more.
            pod = PodEntry(pod_of_config(request.sandbox_config), is_complete=True)
            self._store.pods[request.pod_sandbox_id] = pod
        asked = container_request(pod.asked)
        asked.container_meta.name = request.config.metadata.name
        asked.container_meta.attempt = request.config.metadata.attempt
        asked.container_annotations.update(request.config.annotations)
        asked.container_resources.CopyFrom(hook_resources(request.config.linux.resources))
        asked.container_envs.update(env_map(request.config))
        changed = False
        sandbox = request.sandbox_config.linux
        if pod.kubelet_cgroup_parent and sandbox.cgroup_parent == pod.kubelet_cgroup_parent:
            # cri-dockerd places containers by this field, not by the sandbox's.
            sandbox.cgroup_parent, changed = pod.asked.cgroup_parent, True

        def merge(answer: pb.ContainerResourceHookResponse) -> None:
            nonlocal changed
            changed |= merge_container(asked, answer, request)

        await self._ask_about_container(HookType.PRE_CREATE_CONTAINER, asked, context, merge)
        response = await self._forward("CreateContainer", request.SerializeToString() if changed else data, context)
        if container_id := _parse(cri.ContainerId, response).container_id:
            asked.container_meta.id = container_id
            self._store.containers[container_id] = ContainerEntry(request.pod_sandbox_id, asked, is_complete=True)
        return response

    async def _start_container(self, data: bytes, context: Context) -> bytes:
        container = await self._container(data, HookType.PRE_START_CONTAINER, HookType.POST_START_CONTAINER)
        if container:
            merge = partial(merge_container, container.asked, request=None)
            await self._ask_about_container(HookType.PRE_START_CONTAINER, container.asked, context, merge)
        response = await self._forward("StartContainer", data, context)
        if container:
            await self._tell_about_container(HookType.POST_START_CONTAINER, container, context)
        return response

    async def _update_container(self, data: bytes, context: Context) -> bytes:
        hook = HookType.PRE_UPDATE_CONTAINER_RESOURCES
        container = await self._container(data, hook)
        request = await self._decode(cri.UpdateContainerResourcesRequest, data, context, hook) if container else None
        if container is None or request is None:
            return await self._forward("UpdateContainerResources", data, context)
        asked = pb.ContainerResourceHookRequest()
        asked.CopyFrom(container.asked)
        merge_update(asked.container_resources, hook_resources(request.linux))
        changed = False

        def merge(answer: pb.ContainerResourceHookResponse) -> None:
            nonlocal changed
            changed |= merge_container(asked, answer, request)

        await self._ask_about_container(hook, asked, context, merge)
        response = await self._forward(
            "UpdateContainerResources", request.SerializeToString() if changed else data, context
        )
        container.asked = asked
        return response

    async def _stop_container(self, data: bytes, context: Context) -> bytes:
        hook = HookType.POST_STOP_CONTAINER
        container = await self._container(data, hook)
        response = await self._forward("StopContainer", data, context)
        if container and self._hooks.any_of(hook) and not container.stop_told:
            container.stop_told = await self._tell_about_container(hook, container, context)
        return response

    async def _remove_container(self, data: bytes, context: Context) -> bytes:
        response = await self._forward("RemoveContainer", data, context)
        self._store.containers.pop(_parse(cri.ContainerId, data).container_id, None)
        return response

    async def _container(self, data: bytes, *hooks: HookType) -> ContainerEntry | None:
        """Return the container of a request whose first field is its id, if a hook will be told about it."""
        if not any(self._hooks.any_of(hook) for hook in hooks):
            return self._store.containers.get(_parse(cri.ContainerId, data).container_id)
        return await self._inventory.container(_parse(cri.ContainerId, data).container_id)

    async def _ask_about_pod(
        self,
        hook: HookType,
        asked: pb.PodSandboxHookRequest,
        context: Context,
        merge: Callable[[pb.PodSandboxHookResponse], object],
    ) -> bool:
        if asked.labels.get(self._skip.key) == self._skip.value:
            return True
        try:
            return await self._hooks.ask_about_pod(hook, asked, remaining_seconds(context), merge)
        except HookFailed as error:
            return await context.abort(error.code, str(error))

    async def _ask_about_container(
        self,
        hook: HookType,
        asked: pb.ContainerResourceHookRequest,
        context: Context,
        merge: Callable[[pb.ContainerResourceHookResponse], object],
    ) -> bool:
        if asked.pod_labels.get(self._skip.key) == self._skip.value:
            return True
        try:
            return await self._hooks.ask_about_container(hook, asked, remaining_seconds(context), merge)
        except HookFailed as error:
            return await context.abort(error.code, str(error))

    async def _tell_about_container(self, hook: HookType, container: ContainerEntry, context: Context) -> bool:
        return await self._ask_about_container(hook, container.asked, context, lambda _answer: None)

    async def _forward(self, name: str, data: bytes, context: Context) -> bytes:
        return await self._backend.unary(f"/{RUNTIME_SERVICE}/{name}", data, context)

    async def _decode(self, kind: type[_Message], data: bytes, context: Context, hook: HookType) -> _Message | None:
        """Return the message, or None where the request is malformed and may pass without its hook."""
        try:
            return kind.FromString(data)
        except DecodeError:
            message = f"the request cannot be decoded, hook {hook.value} cannot be asked"
            if self._hooks.any_strict(hook):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            _log.warning("%s; it is forwarded as it came", message)
            return None


def _parse(kind: type[_Message], data: bytes) -> _Message:
    """Return the message, an empty one where it is malformed: the runtime's word stands, only the store misses it."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return kind()
