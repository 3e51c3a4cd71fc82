"""A stand-in for containerd's side of NRI: listens, takes the registration, asks the plugin."""

import socket
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message

from koordlet.nri.mux import PLUGIN_STREAM, RUNTIME_STREAM, Mux
from koordlet.nri.nri_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    PodSandbox,
    RegisterPluginRequest,
    SynchronizeRequest,
    SynchronizeResponse,
)
from koordlet.nri.ttrpc import REQUEST, RESPONSE, Reassembly, encode
from koordlet.nri.ttrpc_pb2 import Request, Response

M = TypeVar("M", bound=Message)


class CallFailed(Exception):
    """The plugin answered with an error: a container would not start."""


class PluginConnection:
    """One plugin that connected; used by the test's thread."""

    def __init__(self, trunk: socket.socket) -> None:
        trunk.settimeout(10)
        self.trunk = trunk
        self.mux = Mux(trunk)
        self._streams = {PLUGIN_STREAM: Reassembly(), RUNTIME_STREAM: Reassembly()}
        self._stream = 1

    def registration(self) -> RegisterPluginRequest:
        """Take RegisterPlugin and answer it."""
        while True:
            stream, data = self.mux.receive()
            for message in self._streams[stream].add(data):
                assert (stream, message.kind) == (RUNTIME_STREAM, REQUEST)
                request = Request.FromString(message.data)
                assert (request.service, request.method) == ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
                self.mux.send(RUNTIME_STREAM, encode(message.stream, RESPONSE, Response().SerializeToString()))
                return RegisterPluginRequest.FromString(request.payload)

    def ask(self, method: str, question: Message, answer: type[M], service: str = "nri.pkg.api.v1alpha1.Plugin") -> M:
        """Call the plugin. Raises CallFailed."""
        request = Request(service=service, method=method, payload=question.SerializeToString())
        self.mux.send(PLUGIN_STREAM, encode(self._stream, REQUEST, request.SerializeToString()))
        self._stream += 2
        while True:
            stream, data = self.mux.receive()
            for message in self._streams[stream].add(data):
                assert (stream, message.kind, message.stream) == (PLUGIN_STREAM, RESPONSE, self._stream - 2)
                response = Response.FromString(message.data)
                if response.status.code:
                    raise CallFailed(response.status.message)
                return answer.FromString(response.payload)

    def begin(self, *pods: PodSandbox) -> int:
        """Register, configure and synchronize as containerd does; return the mask of events."""
        self.registration()
        asked = ConfigureRequest(runtime_name="containerd", runtime_version="v2.1", request_timeout=2000)
        configured = self.ask("Configure", asked, ConfigureResponse)
        self.ask("Synchronize", SynchronizeRequest(pods=pods), SynchronizeResponse)
        return configured.events

    def close(self) -> None:
        """End the connection."""
        self.trunk.close()


class Runtime:
    """Listens on a socket."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._listener.settimeout(30)
        self.path = path

    def accept(self) -> PluginConnection:
        """Return the next plugin that connects."""
        return PluginConnection(self._listener.accept()[0])

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        self.path.unlink(missing_ok=True)


def sandbox(
    uid: str = "u1",
    *,
    parent: str = "/kubepods/besteffort/podu1",
    annotations: dict[str, str] | None = None,
    qos: str = "BE",
) -> PodSandbox:
    """A pod as the runtime tells of it."""
    found = PodSandbox(
        id="s1",
        name="web",
        uid=uid,
        namespace="default",
        labels={"koordinator.sh/qosClass": qos},
        annotations=annotations or {},
    )
    found.linux.cgroup_parent = parent
    return found


def container(name: str = "main", *, path: str = "/kubepods/besteffort/podu1/c1") -> Container:
    """A container as the runtime tells of it."""
    found = Container(id="c1", pod_sandbox_id="s1", name=name)
    found.linux.cgroups_path = path
    found.linux.resources.cpu.shares.value = 2
    return found
