"""Every gRPC and ttrpc service of ours beside peers that send no messages, no frames, or too much of both.

KOORD_FUZZ_CALLS sets the calls for each service (80 by default), half as many connections of bytes.
"""

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordlet.nri.mux import MOST_BYTES, MOST_SENT_BYTES
from koordlet.nri.nri_pb2 import CreateContainerRequest, CreateContainerResponse
from koordlet.nri.runtime_link import RuntimeLink
from koordlet.nri.settings import NriSettings
from koordlet.nri.ttrpc import encode
from koordlet.nri.ttrpc_pb2 import Request
from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as hooks_pb
from koordlet.runtime_proxy.hook_service import HookService
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.hooked_calls import RUNTIME_SERVICE
from koordlet.runtime_proxy.plugin_answers import PluginAnswers
from koordlet.runtime_proxy.settings import HookServiceSettings, ProxySettings
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.server import SERVICE, AgentServer
from koordlet.serving.settings import ServingSettings
from koordlet.serving.status import AgentStatus
from tests.certificates import Authority
from tests.fake_cri import FakeRuntime, ProxyThread
from tests.koordlet.nri.runtime import Runtime, container, sandbox
from tests.koordlet.nri.test_plugin import BATCH, Host
from tests.waiting import wait_for

CALLS = int(os.environ.get("KOORD_FUZZ_CALLS", "80"))
FUZZED = settings(max_examples=CALLS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
STATUS = AgentStatus("n1", "0.1", "6.18", 1.0, ())
CLIENTS_FAULT = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)
"""What a call may end with; UNKNOWN and INTERNAL say that we failed."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True)
class Service:
    """A service that runs: how it is reached, its methods, and what one of them answers."""

    channel: Callable[[], grpc.Channel]
    connect: Callable[[], socket.socket]
    methods: tuple[str, ...]
    seeds: tuple[bytes, ...]
    honest: Callable[[grpc.Channel], object]


def _unix(path: Path) -> Callable[[], socket.socket]:
    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(str(path))
        return made

    return connect


AGENT_METHODS = tuple(f"/{SERVICE}/{name}" for name in ("ListVerdicts", "Node", "Verdicts", "Frames"))
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
AGENT_SEEDS = (pb.VerdictFilter().SerializeToString(), b"\x0a\x03abc", b"\x08\x01")


def _ask_agent(channel: grpc.Channel) -> object:
    answer = channel.unary_unary(f"/{SERVICE}/Node", None, pb.NodeStatus.FromString)(b"", timeout=20)
    assert answer.hostname == "n1"
    return answer


@contextlib.contextmanager
def agent_socket(folder: Path) -> Iterator[Service]:
    """The agent's unix socket."""
    path = folder / "s.sock"
    server = AgentServer(ServingSettings(enabled=True, socket=str(path)), STATUS)
    server.start()
    try:
        methods = (*AGENT_METHODS, REFLECTION)
        yield Service(lambda: grpc.insecure_channel(f"unix:{path}"), _unix(path), methods, AGENT_SEEDS, _ask_agent)
    finally:
        server.close()


@contextlib.contextmanager
def agent_tcp(folder: Path) -> Iterator[Service]:
    """The agent's listener for clients with a certificate."""
    ours, theirs = Authority(folder / "agents", "agents"), Authority(folder / "clients", "clients")
    pair, client = ours.issue("server", names=("IP:127.0.0.1",)), theirs.issue("client")
    tls = {"certificate": str(pair.certificate), "key": str(pair.key), "client_ca": str(theirs.pair.certificate)}
    server = AgentServer(
        ServingSettings(enabled=True, socket=str(folder / "s.sock"), address="127.0.0.1:0", **tls), STATUS
    )
    server.start()
    credentials = grpc.ssl_channel_credentials(
        ours.pair.certificate.read_bytes(), client.key.read_bytes(), client.certificate.read_bytes()
    )
    context = ssl.create_default_context(cafile=str(ours.pair.certificate))
    context.load_cert_chain(client.certificate, client.key)
    context.set_alpn_protocols(["h2"])

    def connect() -> socket.socket:
        return context.wrap_socket(
            socket.create_connection(("127.0.0.1", server.port), 20), server_hostname="127.0.0.1"
        )

    try:
        yield Service(
            lambda: grpc.secure_channel(f"127.0.0.1:{server.port}", credentials),
            connect,
            (*AGENT_METHODS, REFLECTION),
            AGENT_SEEDS,
            _ask_agent,
        )
    finally:
        server.close()


@contextlib.contextmanager
def hook_server(folder: Path) -> Iterator[Service]:
    """The agent as hook server of the runtime proxy, with its rules."""
    path = folder / "h.sock"
    made = HookService(HookServiceSettings(enabled=True, socket=str(path), directory=""), PluginAnswers(Host().plugin))
    made.start()
    pod = hooks_pb.PodSandboxHookRequest(labels={"koordinator.sh/qosClass": "BE"}, cgroup_parent="/kubepods/podu1")
    asked = hooks_pb.ContainerResourceHookRequest(pod_annotations=BATCH, pod_cgroup_parent="/kubepods/besteffort/podu1")

    def honest(channel: grpc.Channel) -> object:
        call = channel.unary_unary(
            HookType.PRE_RUN_POD_SANDBOX.method, None, hooks_pb.PodSandboxHookResponse.FromString
        )
        return call(pod.SerializeToString(), timeout=20)

    try:
        yield Service(
            lambda: grpc.insecure_channel(f"unix:{path}"),
            _unix(path),
            tuple(hook.method for hook in HookType),
            (pod.SerializeToString(), asked.SerializeToString()),
            honest,
        )
    finally:
        made.close()


@contextlib.contextmanager
def runtime_proxy(folder: Path) -> Iterator[Service]:
    """The proxy before a container runtime."""
    (folder / "hooks.d").mkdir()
    made = ProxySettings(
        socket=str(folder / "p.sock"),
        backend=str(folder / "r.sock"),
        hook_directory=str(folder / "hooks.d"),
        hook_timeout_seconds=1.0,
        drain_seconds=1.0,
    )
    pod = cri.RunPodSandboxRequest()
    pod.config.metadata.name = "web"
    created = cri.CreateContainerRequest(pod_sandbox_id="pod0")
    names = ("RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainerResources", "StopContainer")
    names += ("RemoveContainer", "StopPodSandbox", "RemovePodSandbox", "Version", "FromTheFuture")
    methods = tuple(f"/{RUNTIME_SERVICE}/{name}" for name in names)

    def honest(channel: grpc.Channel) -> object:
        call = channel.unary_unary(f"/{RUNTIME_SERVICE}/Version", None, cri.VersionResponse.FromString)
        assert call(b"", timeout=20).runtime_name == "fake"
        return call

    with FakeRuntime(Path(made.backend)) as runtime:
        # What the stand-in for the runtime cannot read is not the proxy's fault.
        for name in (*(set(names) - {"Version", "FromTheFuture"}), "PodSandboxStatus", "ContainerStatus"):
            runtime.answers[name] = lambda _request, _context: b""
        thread = ProxyThread(made)
        thread.start()
        try:
            yield Service(
                lambda: grpc.insecure_channel(f"unix:{made.socket}"),
                _unix(Path(made.socket)),
                methods,
                (pod.SerializeToString(), created.SerializeToString()),
                honest,
            )
        finally:
            thread.stop()


SERVICES = {made.__name__: made for made in (agent_socket, agent_tcp, hook_server, runtime_proxy)}


@pytest.fixture(scope="module", params=sorted(SERVICES))
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with SERVICES[request.param](tmp_path_factory.mktemp("g")) as made:
        yield made


def varint(number: int) -> bytes:
    found = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        found.append(low | (0x80 if number else 0))
        if not number:
            return bytes(found)


@st.composite
def payloads(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Mostly a message with fields of the wrong type, cut, doubled, or longer than they are."""
    found = bytearray(draw(st.sampled_from(list(seeds)) | st.binary(max_size=60)))
    for _ in range(draw(st.integers(0, 3))):
        field, kind = draw(st.integers(1, 20)), draw(st.integers(0, 7))
        length = draw(st.sampled_from([0, 1, 3, 200, 1 << 20, 1 << 31, (1 << 63) - 1]))
        patch = varint(field << 3 | kind) + varint(length) + draw(st.binary(max_size=20))
        at = draw(st.integers(0, len(found)))
        found[at : at + draw(st.integers(0, 5))] = patch
    return bytes(found)[: draw(st.sampled_from([5, 100, 1 << 16]))]


@pytest.mark.usefixtures("quiet")
def test_no_message_breaks_a_service(service: Service) -> None:
    with service.channel() as channel:
        service.honest(channel)

        @FUZZED
        @given(st.data())
        def fuzz(data: st.DataObject) -> None:
            method = data.draw(
                st.sampled_from(service.methods) | st.sampled_from(["/", "/a", "//", "/a/b/c", "/x/Node"])
            )
            payload = data.draw(payloads(service.seeds))
            call = channel.unary_stream(method)(payload, timeout=0.5 if method.endswith(("Verdicts", "Frames")) else 20)
            try:
                next(call, None)
                code = grpc.StatusCode.OK
            except grpc.RpcError:
                code = call.code()
            finally:
                call.cancel()
            assert code in CLIENTS_FAULT, (method, payload, code, call.details())

        fuzz()
        service.honest(channel)


def frame(kind: int, flags: int, stream: int, data: bytes, length: int | None = None) -> bytes:
    """A frame of HTTP/2; `length` is what it says of itself."""
    size = len(data) if length is None else length
    return struct.pack(">I", size)[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + data


frames = st.builds(
    frame,
    st.integers(0, 12),
    st.sampled_from([0, 1, 4, 5, 8, 0xFF]),
    st.sampled_from([0, 1, 2, 3, (1 << 31) - 1, 1 << 31]),
    st.binary(max_size=60),
    st.sampled_from([None, None, None, 0, 1, (1 << 24) - 1]),
)
streams = st.one_of(
    st.binary(max_size=100),
    st.just(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    st.lists(frames, max_size=6).map(lambda made: PREFACE + frame(4, 0, 0, b"") + b"".join(made)),
    st.integers(0, len(PREFACE)).map(lambda end: PREFACE[:end]),
)


@pytest.mark.usefixtures("quiet")
def test_no_frame_breaks_a_service(service: Service) -> None:
    before = threading.active_count()

    @settings(FUZZED, max_examples=CALLS // 2)
    @given(data=streams, cut=st.integers(0, 100))
    def fuzz(data: bytes, cut: int) -> None:
        with contextlib.closing(service.connect()) as connection, contextlib.suppress(OSError):
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            socket.socket.shutdown(connection, socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    fuzz()
    with contextlib.ExitStack() as held, service.channel() as channel:
        for half in (b"", PREFACE[:5], PREFACE, PREFACE + frame(0, 0, 1, b"", 1 << 20)):
            held.enter_context(contextlib.closing(service.connect())).sendall(half)
        service.honest(channel)
    wait_for(lambda: threading.active_count() <= before + 4)


QUICK = NriSettings(backoff_seconds=0.01, connect_timeout_seconds=5.0)
CREATE = Request(
    service="nri.pkg.api.v1alpha1.Plugin",
    method="CreateContainer",
    payload=CreateContainerRequest(pod=sandbox(annotations=BATCH), container=container()).SerializeToString(),
)


@st.composite
def trunks(draw: st.DrawFn) -> bytes:
    """Bytes from a runtime: multiplexed frames of ttrpc messages, some of them whole."""
    found = bytearray()
    for _ in range(draw(st.integers(1, 4))):
        request = Request.FromString(CREATE.SerializeToString())
        if draw(st.booleans()):
            request.payload = draw(payloads([CREATE.payload]))
        if draw(st.integers(0, 3)) == 0:
            request.method = draw(st.sampled_from(["", "Configure", "Synchronize", "StopPodSandbox", "../x", "\0"]))
        body = draw(st.sampled_from([request.SerializeToString()] * 3 + [b"\xff\xff"]))
        message = encode(
            draw(st.sampled_from([1, 3, 2, 0, (1 << 32) - 1])), draw(st.sampled_from([1, 1, 1, 2, 9])), body
        )
        if draw(st.integers(0, 4)) == 0:
            message = struct.pack(">I", draw(st.sampled_from([0, 1, 1 << 22, (1 << 32) - 1]))) + message[4:]
        for start in range(0, len(message), MOST_SENT_BYTES):
            part = message[start : start + MOST_SENT_BYTES]
            length = draw(st.sampled_from([len(part)] * 6 + [0, MOST_BYTES + 1, (1 << 32) - 1]))
            found += struct.pack(">II", draw(st.sampled_from([1, 1, 1, 2, 0, 7])), length) + part
    return bytes(found[: draw(st.sampled_from([7, 30, 1 << 20]))])


@pytest.mark.usefixtures("quiet")
def test_no_runtime_breaks_the_nri_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koordlet.nri.runtime_link._MOST_PAUSE_SECONDS", QUICK.backoff_seconds)
    runtime = Runtime(tmp_path / "nri.sock")
    link = RuntimeLink(Host().plugin, tmp_path / "nri.sock", QUICK)
    link.start()
    try:

        @settings(FUZZED, max_examples=CALLS // 2)
        @given(trunks())
        def fuzz(data: bytes) -> None:
            plugin = runtime.accept()
            with contextlib.closing(plugin), contextlib.suppress(OSError):
                plugin.registration()
                plugin.trunk.sendall(data)
                plugin.trunk.shutdown(socket.SHUT_WR)
                while plugin.trunk.recv(1 << 16):
                    pass

        fuzz()
        sound = runtime.accept()
        assert sound.begin()
        asked = CreateContainerRequest(pod=sandbox(annotations=BATCH), container=container())
        answer = sound.ask("CreateContainer", asked, CreateContainerResponse)
        assert answer.adjust.linux.resources.cpu.shares.value == 512
        assert sum(thread.name == "nri" for thread in threading.enumerate()) == 1
        sound.close()
    finally:
        link.close()
        runtime.close()
