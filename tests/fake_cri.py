"""A container runtime, hook servers and a proxy on unix sockets, for tests of what the kubelet meets."""

import asyncio
import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.proxy_server import RuntimeProxy
from koordlet.runtime_proxy.settings import ProxySettings

RUNTIME = "/runtime.v1.RuntimeService/"
HOOKS = "/runtime.v1alpha1.RuntimeHookService/"
BIG = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 << 20),
    ("grpc.absolute_max_metadata_size", 16 << 20),
]
"""Limits of the kubelet and of runtimes, gRPC's in Go."""
EXEC_OUTPUT = b"\x0a\x03out\x18\x07"
"""ExecSyncResponse with stdout `out` and exit code 7."""

UNHEARD_OF = "UnheardOf"
"""Method that servers refuse without having read a message."""

Answer = Callable[[bytes, grpc.ServicerContext], bytes]


def text_field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field of a message, shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(value))) + value


@dataclass
class Call:
    """A call that a server received."""

    name: str
    request: bytes
    metadata: dict[str, str | bytes]
    seconds_left: float | None


@dataclass
class FakeServer:
    """A gRPC server of bytes on a unix socket."""

    socket: Path
    calls: list[Call] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    """What a method does instead of its default, by the last part of its name."""
    prefix: str = RUNTIME

    def start(self) -> None:
        """Listen."""
        self._server = grpc.server(ThreadPoolExecutor(16), options=BIG)
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """End all calls and remove the socket."""
        self._server.stop(0).wait(5)
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def requests(self, name: str) -> list[bytes]:
        """Return the requests of a method."""
        return [call.request for call in self.calls if call.name == name]

    def names(self) -> list[str]:
        """Return the names of the methods called."""
        return [call.name for call in self.calls]

    def handler(self, method: str) -> Any:
        """Return the handler of a method."""
        name = method.rpartition("/")[2]
        if name == UNHEARD_OF:
            return None

        def unary(request: bytes, context: grpc.ServicerContext) -> bytes:
            metadata = {each.key: each.value for each in context.invocation_metadata()}
            self.calls.append(Call(name, request, metadata, context.time_remaining()))
            return self.answers.get(name, lambda request, context: self.default(name, request, context))(
                request, context
            )

        return grpc.unary_unary_rpc_method_handler(unary)

    def default(self, name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Return the answer of a method without one of its own."""
        return context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._server.handler(handler_call_details.method)


@dataclass
class FakeRuntime(FakeServer):
    """The part of a runtime that a pod's life from RunPodSandbox to RemovePodSandbox needs."""

    pods: dict[str, cri.RunPodSandboxRequest] = field(default_factory=dict)
    containers: dict[str, cri.CreateContainerRequest] = field(default_factory=dict)
    events: "queue.Queue[bytes | None]" = field(default_factory=queue.Queue)
    cancelled: threading.Event = field(default_factory=threading.Event)
    sent: int = 0

    def handler(self, method: str) -> Any:
        """Return the handler of a method; GetContainerEvents, Echo and Flood are streams."""
        name = method.rpartition("/")[2]
        if name == "GetContainerEvents":
            return grpc.unary_stream_rpc_method_handler(self._events)
        if name == "Echo":
            return grpc.stream_stream_rpc_method_handler(lambda requests, _context: requests)
        if name == "Flood":
            return grpc.unary_stream_rpc_method_handler(self._flood)
        return super().handler(method)

    def default(self, name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer as a runtime does."""
        method = getattr(self, f"_{name}", None)
        return method(request, context) if method else super().default(name, request, context)

    def _events(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.cancelled.set)
        context.add_callback(lambda: self.events.put(None))
        while (event := self.events.get()) is not None:
            yield event

    def _flood(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.cancelled.set)
        for _ in range(1000):
            self.sent += 1
            yield bytes(1 << 20)

    def _Version(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        return cri.VersionResponse(version="0.1.0", runtime_name="fake").SerializeToString()

    def _RunPodSandbox(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        pod_id = f"pod{len(self.pods)}"
        self.pods[pod_id] = cri.RunPodSandboxRequest.FromString(request)
        return cri.RunPodSandboxResponse(pod_sandbox_id=pod_id).SerializeToString()

    def _CreateContainer(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # noqa: N802
        message = cri.CreateContainerRequest.FromString(request)
        if message.pod_sandbox_id not in self.pods:
            context.abort(grpc.StatusCode.NOT_FOUND, f'pod sandbox "{message.pod_sandbox_id}" not found')
        container_id = f"container{len(self.containers)}"
        self.containers[container_id] = message
        return cri.ContainerId(container_id=container_id).SerializeToString()

    def _done(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        return b""

    _StartContainer = _StopContainer = _UpdateContainerResources = _ReopenContainerLog = _StopPodSandbox = _done

    def _RemoveContainer(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        self.containers.pop(cri.ContainerId.FromString(request).container_id, None)
        return b""

    def _RemovePodSandbox(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        pod_id = cri.PodSandboxId.FromString(request).pod_sandbox_id
        self.pods.pop(pod_id, None)
        for name in [name for name, each in self.containers.items() if each.pod_sandbox_id == pod_id]:
            del self.containers[name]
        return b""

    def _ExecSync(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        return EXEC_OUTPUT

    def _url(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        return text_field(1, b"http://127.0.0.1:1/stream/token")

    _Exec = _Attach = _PortForward = _url

    def _ListPodSandbox(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        wanted = cri.ListRequest.FromString(request).filter.id
        response = cri.ListPodSandboxResponse()
        for pod_id, pod in self.pods.items():
            if wanted in ("", pod_id):
                response.items.add(
                    id=pod_id,
                    metadata=pod.config.metadata,
                    labels=pod.config.labels,
                    annotations=pod.config.annotations,
                    runtime_handler=pod.runtime_handler,
                )
        return response.SerializeToString()

    def _PodSandboxStatus(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        parent = self.pods[cri.StatusRequest.FromString(request).id].config.linux.cgroup_parent
        info = {"info": json.dumps({"config": {"linux": {"cgroup_parent": parent}}})}
        return cri.PodSandboxStatusResponse(info=info).SerializeToString()

    def _ListContainers(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        wanted = cri.ListRequest.FromString(request).filter.id
        response = cri.ListContainersResponse()
        for container_id, each in self.containers.items():
            if wanted in ("", container_id):
                response.containers.add(
                    id=container_id,
                    pod_sandbox_id=each.pod_sandbox_id,
                    metadata=each.config.metadata,
                    annotations=each.config.annotations,
                )
        return response.SerializeToString()

    def _ContainerStatus(self, request: bytes, _context: grpc.ServicerContext) -> bytes:  # noqa: N802
        container_id = cri.StatusRequest.FromString(request).id
        resources = cri.ContainerResources(linux=self.containers[container_id].config.linux.resources)
        status = cri.ContainerStatus(id=container_id, resources=resources)
        return cri.ContainerStatusResponse(status=status).SerializeToString()


@dataclass
class FakeHookServer(FakeServer):
    """A hook server that answers with what it was asked, until it is given other answers."""

    prefix: str = HOOKS

    def default(self, name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer as a hook server without rules."""
        if name.endswith("PodSandboxHook"):
            return same_pod(pb.PodSandboxHookRequest.FromString(request)).SerializeToString()
        return same_container(pb.ContainerResourceHookRequest.FromString(request)).SerializeToString()

    def change_pod(self, name: str, change: Callable[[pb.PodSandboxHookResponse], None]) -> None:
        """Let the hook change its answer."""

        def answer(request: bytes, _context: grpc.ServicerContext) -> bytes:
            response = same_pod(pb.PodSandboxHookRequest.FromString(request))
            change(response)
            return response.SerializeToString()

        self.answers[name] = answer

    def change_container(self, name: str, change: Callable[[pb.ContainerResourceHookResponse], None]) -> None:
        """Let the hook change its answer."""

        def answer(request: bytes, _context: grpc.ServicerContext) -> bytes:
            response = same_container(pb.ContainerResourceHookRequest.FromString(request))
            change(response)
            return response.SerializeToString()

        self.answers[name] = answer


def same_pod(request: pb.PodSandboxHookRequest) -> pb.PodSandboxHookResponse:
    """Return the answer that changes nothing."""
    response = pb.PodSandboxHookResponse(
        labels=request.labels, annotations=request.annotations, cgroup_parent=request.cgroup_parent
    )
    if request.HasField("resources"):
        response.resources.CopyFrom(request.resources)
    return response


def same_container(request: pb.ContainerResourceHookRequest) -> pb.ContainerResourceHookResponse:
    """Return the answer that changes nothing."""
    response = pb.ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )
    if request.HasField("container_resources"):
        response.container_resources.CopyFrom(request.container_resources)
    return response


class Kubelet:
    """Client of a CRI socket that sends and receives bytes, with the kubelet's limits."""

    def __init__(self, socket: Path) -> None:
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=BIG)

    def call(self, name: str, request: bytes = b"", timeout: float = 20.0) -> bytes:
        """Return the response. Raises grpc.RpcError."""
        method = name if name.startswith("/") else RUNTIME + name
        response: bytes = self.channel.unary_unary(method)(request, timeout=timeout)
        return response

    def run_pod(self, **config: Any) -> str:
        """Run a pod of this configuration and return its id."""
        request = cri.RunPodSandboxRequest(config=cri.PodSandboxConfig(**config))
        return cri.RunPodSandboxResponse.FromString(
            self.call("RunPodSandbox", request.SerializeToString())
        ).pod_sandbox_id

    def create(self, pod_id: str, sandbox: cri.PodSandboxConfig | None = None, **config: Any) -> str:
        """Create a container of this configuration and return its id."""
        request = cri.CreateContainerRequest(
            pod_sandbox_id=pod_id, config=cri.ContainerConfig(**config), sandbox_config=sandbox
        )
        return cri.ContainerId.FromString(self.call("CreateContainer", request.SerializeToString())).container_id

    def on_container(self, name: str, container_id: str) -> bytes:
        """Call a method that takes a container's id."""
        return self.call(name, cri.ContainerId(container_id=container_id).SerializeToString())

    def on_pod(self, name: str, pod_id: str) -> bytes:
        """Call a method that takes a pod sandbox's id."""
        return self.call(name, cri.PodSandboxId(pod_sandbox_id=pod_id).SerializeToString())

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()


@contextlib.contextmanager
def kubelet_of(socket: Path) -> Iterator[Kubelet]:
    """Return a client of the socket."""
    kubelet = Kubelet(socket)
    try:
        yield kubelet
    finally:
        kubelet.close()


def _loop_of_a_thread() -> asyncio.AbstractEventLoop:
    """Return a loop that runs until the end of the process: gRPC keeps late events of a loop, also of a closed one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


_LOOP = _loop_of_a_thread()


class ProxyThread:
    """A proxy in an event loop of another thread."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings

    def start(self) -> None:
        """Start; raises what the start of the proxy raised."""
        asyncio.run_coroutine_threadsafe(self._start(), _LOOP).result(20)

    def stop(self) -> None:
        """Drain and end."""
        asyncio.run_coroutine_threadsafe(self.proxy.stop(), _LOOP).result(30)

    async def _start(self) -> None:
        self.proxy = RuntimeProxy(self.settings)
        await self.proxy.start()


Register = Callable[..., None]
"""Writer of a registration file: socket, and policy, hooks and name of the file."""
