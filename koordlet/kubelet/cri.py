"""Client of the container runtime's socket: sandboxes, containers, their cgroups, and a stream of changes."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc

from api.plugin import Unsupported
from koordlet.host.files import HostTree
from koordlet.kubelet import cri_pb2 as pb
from koordlet.kubelet.configuration import CgroupDriver
from koordlet.kubelet.runtime_view import (
    RuntimeContainer,
    RuntimeEvent,
    RuntimeSandbox,
    RuntimeView,
    cgroup_path_of_info,
)

SERVICE = "/runtime.v1.RuntimeService/"
USUAL_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/cri-dockerd.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
)
"""containerd, CRI-O, cri-dockerd, k3s and RKE2, k0s, MicroK8s."""
_MAX_MESSAGE_BYTES = 64 << 20

_Answer = TypeVar("_Answer", bound="_Message")


class _Message(Protocol):
    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Encode."""

    @classmethod
    def FromString(cls, data: bytes) -> Any:  # noqa: N802 - protobuf's name
        """Decode."""


class RuntimeUnavailable(Unsupported):
    """The container runtime does not answer; reason and remedy say why and what mends it."""


def find_socket(tree: HostTree, *named: str, usual: bool = True) -> Path | None:
    """Return the first of the named sockets, and of the usual ones unless not wanted, below the tree's root."""
    for name in (*named, *(USUAL_SOCKETS if usual else ())):
        path = tree.path(name.removeprefix("unix://"))
        if name and is_socket(path):
            return path
    return None


def is_socket(path: Path) -> bool:
    """Return whether there is a socket."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def open_channel(socket: Path) -> grpc.Channel:
    """Return a channel to a unix socket; it connects when it is used."""
    options = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
    ]
    return grpc.insecure_channel(f"unix:{os.fspath(socket)}", options=options)


class RuntimeClient:
    """Client of one runtime; its calls wait for `timeout_seconds` at most and may come from any thread."""

    def __init__(self, socket: Path, timeout_seconds: float) -> None:
        self.socket = socket
        self.requests = 0
        self.failures = 0
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(socket)
        self._name = ""

    def version(self) -> tuple[str, str]:
        """Return name and version of the runtime. Raises RuntimeUnavailable."""
        answer = self._call("Version", pb.VersionRequest(version="v1"), pb.VersionResponse)
        self._name = answer.runtime_name
        return answer.runtime_name, answer.runtime_version

    def cgroup_driver(self) -> CgroupDriver | None:
        """Return the driver that the runtime uses; None where it does not tell (before CRI 1.28)."""
        try:
            answer = self._call("RuntimeConfig", pb.RuntimeConfigRequest(), pb.RuntimeConfigResponse)
        except RuntimeUnavailable:
            return None
        if not answer.HasField("linux"):
            return None
        return "cgroupfs" if answer.linux.cgroup_driver == pb.CGROUPFS else "systemd"

    def view(self) -> RuntimeView:
        """Return all sandboxes and containers. Raises RuntimeUnavailable."""
        name = self._name or self.version()[0]
        containers = self._call("ListContainers", pb.ListContainersRequest(), pb.ListContainersResponse)
        # Sandboxes come second, so that each container's own is among them.
        sandboxes = self._call("ListPodSandbox", pb.ListPodSandboxRequest(), pb.ListPodSandboxResponse)
        return RuntimeView(
            runtime=name,
            sandboxes=tuple(map(_sandbox, sandboxes.items)),
            containers=tuple(map(_container, containers.containers)),
        )

    def place_of(self, container_id: str, timeout_seconds: float | None = None) -> str:
        """Return the path of a container's cgroup; empty where the runtime does not tell. Raises RuntimeUnavailable."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        answer = self._call("ContainerStatus", request, pb.ContainerStatusResponse, timeout_seconds)
        return cgroup_path_of_info(answer.info)

    def close(self) -> None:
        """End all calls and the connection."""
        self._channel.close()

    def events(self) -> "RuntimeEvents":
        """Return the stream of changes."""
        call = self._channel.unary_stream(
            f"{SERVICE}GetContainerEvents",
            pb.GetEventsRequest.SerializeToString,
            pb.ContainerEventResponse.FromString,
        )
        return RuntimeEvents(call(pb.GetEventsRequest()))

    def _call(self, method: str, request: Any, answer: type[_Answer], timeout_seconds: float | None = None) -> _Answer:
        self.requests += 1
        patience_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        call = self._channel.unary_unary(f"{SERVICE}{method}", type(request).SerializeToString, answer.FromString)
        try:
            result: _Answer = call(request, timeout=patience_seconds)
        except grpc.RpcError as error:
            self.failures += 1
            raise RuntimeUnavailable(
                f"the container runtime at {self.socket}: {method}: {error.code().name}: {error.details()}",
                "check that it runs and serves runtime.v1, or set [kubelet] cri_socket",
            ) from error
        except ValueError as error:  # the channel was closed
            raise RuntimeUnavailable(f"the container runtime at {self.socket}: {method}: {error}") from error
        return result


class RuntimeEvents:
    """Open stream of container changes; `follow` it in one thread, `stop` it from any."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def follow(self, changed: Callable[[RuntimeEvent], None]) -> None:
        """Call `changed` with each event until the stream ends. Raises RuntimeUnavailable where it breaks."""
        try:
            for event in self._call:
                changed(_event(event))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise RuntimeUnavailable(f"container events: {error.code().name}: {error.details()}") from error

    def stop(self) -> None:
        """End the stream."""
        self._call.cancel()


class EventFollower:
    """Thread that follows the events of a runtime, again with back-off where the stream ends."""

    def __init__(
        self, client: RuntimeClient, changed: Callable[[RuntimeEvent], None], delays_seconds: Callable[[int], float]
    ) -> None:
        self.streams = 0
        """Streams opened; many of them mean that the runtime has no events, which is no fault."""
        self._client = client
        self._changed = changed
        self._delays_seconds = delays_seconds
        self._stopping = threading.Event()
        self._events: RuntimeEvents | None = None
        self._thread = threading.Thread(target=self._run, name="runtime-events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """End the stream and the thread."""
        self._stopping.set()
        events = self._events
        if events is not None:
            events.stop()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        silent = 0
        while not self._stopping.is_set():
            heard = False

            def changed(event: RuntimeEvent) -> None:
                nonlocal heard
                heard = True
                self._changed(event)

            # CRI-O ends the stream at once unless enable_pod_events is set; others lack the method.
            with contextlib.suppress(RuntimeUnavailable, ValueError):
                self._events = self._client.events()
                self.streams += 1
                if not self._stopping.is_set():
                    self._events.follow(changed)
            silent = 0 if heard else silent + 1
            self._stopping.wait(self._delays_seconds(silent))


def _event(message: pb.ContainerEventResponse) -> RuntimeEvent:
    deleted = message.container_id if message.container_event_type == pb.CONTAINER_DELETED_EVENT else ""
    if not message.HasField("pod_sandbox_status"):
        return RuntimeEvent(deleted=deleted)
    sandbox = _sandbox(message.pod_sandbox_status)
    containers = (_instance(each, sandbox.id) for each in message.containers_statuses)
    return RuntimeEvent(sandbox, tuple(containers), deleted)


def _sandbox(message: pb.PodSandbox | pb.PodSandboxStatus) -> RuntimeSandbox:
    meta = message.metadata
    return RuntimeSandbox(
        id=message.id,
        uid=meta.uid,
        namespace=meta.namespace,
        pod=meta.name,
        attempt=meta.attempt,
        ready=message.state == pb.SANDBOX_READY,
    )


def _container(message: pb.Container) -> RuntimeContainer:
    return _instance(message, message.pod_sandbox_id)


def _instance(message: pb.Container | pb.ContainerStatus, sandbox_id: str) -> RuntimeContainer:
    return RuntimeContainer(
        id=message.id,
        sandbox_id=sandbox_id,
        name=message.metadata.name,
        attempt=message.metadata.attempt,
        running=message.state == pb.CONTAINER_RUNNING,
        ended=message.state == pb.CONTAINER_EXITED,
    )
