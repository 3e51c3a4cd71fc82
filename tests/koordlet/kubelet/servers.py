"""A kubelet over HTTPS, and a runtime with pod resources over gRPC, which answer from recordings."""

import http.server
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from koordlet.kubelet import cri_pb2 as cri
from koordlet.kubelet import pod_resources_pb2 as resources

TOKEN = "account-token"


def make_certificate(folder: Path, names: str) -> Path:
    """Make an authority `ca.crt`, and `server.pem` (certificate and key) for subject alternative names; return it."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=authority")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=system:node:node-0")
    (folder / "names").write_text(f"subjectAltName={names}\n")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", "2", "-out", "server.crt", "-extfile", "names"),
    )
    both = folder / "server.pem"
    both.write_text((folder / "server.crt").read_text() + (folder / "server.key").read_text())
    return both


class KubeletServer:
    """A kubelet that demands TOKEN and answers `answers[path]`: a body, or a status without one."""

    def __init__(self, certificate: Path | None, answers: Mapping[str, bytes | int]) -> None:
        self.answers = dict(answers)
        self.token = TOKEN
        self.seen: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.seen.append(self.path)
                answer = outer.answers.get(self.path, 404)
                if certificate is not None and self.headers.get("Authorization") != f"Bearer {outer.token}":
                    answer = 401
                body = b"" if isinstance(answer, int) else answer
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Stay silent."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class RuntimeServer:
    """A container runtime and the kubelet's pod resources on one socket; `cri` may be changed while it runs."""

    def __init__(self, socket: Path, document: Mapping[str, Any]) -> None:
        self.cri: dict[str, Any] = dict(document)
        self.calls: list[str] = []
        self.has_events = True
        self.hanging: set[str] = set()
        """Methods that do not answer before the call is given up or `wake` is called."""
        self._woken = threading.Event()
        self._streams: list[Queue[cri.ContainerEventResponse | None]] = []
        socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(8))
        runtime: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: _answering(self._answer(name, answer), request)
            for name, request, answer in (
                ("Version", cri.VersionRequest, cri.VersionResponse),
                ("ListPodSandbox", cri.ListPodSandboxRequest, cri.ListPodSandboxResponse),
                ("ListContainers", cri.ListContainersRequest, cri.ListContainersResponse),
                ("RuntimeConfig", cri.RuntimeConfigRequest, cri.RuntimeConfigResponse),
                ("ContainerStatus", cri.ContainerStatusRequest, cri.ContainerStatusResponse),
            )
        }
        runtime["GetContainerEvents"] = grpc.unary_stream_rpc_method_handler(
            self._events, cri.GetEventsRequest.FromString, cri.ContainerEventResponse.SerializeToString
        )
        listing = {
            "List": _answering(
                self._answer("PodResources", resources.ListPodResourcesResponse), resources.ListPodResourcesRequest
            )
        }
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", runtime),
                grpc.method_handlers_generic_handler("v1.PodResourcesLister", listing),
            )
        )
        self._server.add_insecure_port(f"unix:{socket}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.put(None)
        self.wake()
        self._server.stop(0).wait(10)

    def wake(self) -> None:
        """Answer again."""
        self.hanging.clear()
        self._woken.set()

    def announce(self, event: Mapping[str, Any] | None = None) -> None:
        """Send an event on every stream; without one, an id alone."""
        message = ParseDict(dict(event or {"container_id": "a" * 64}), cri.ContainerEventResponse())
        for stream in self._streams:
            stream.put(message)

    @property
    def streams(self) -> int:
        """Streams that were opened."""
        return len(self._streams)

    def _events(self, _request: Any, context: grpc.ServicerContext) -> Iterator[cri.ContainerEventResponse]:
        if not self.has_events:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no events")
        stream: Queue[cri.ContainerEventResponse | None] = Queue()
        self._streams.append(stream)
        context.add_callback(lambda: stream.put(None))
        while (event := stream.get()) is not None:
            yield event

    def _answer(self, name: str, answer: type[Message]) -> Callable[[Any, grpc.ServicerContext], Message]:
        def respond(request: Any, context: grpc.ServicerContext) -> Message:
            self.calls.append(name)
            if name in self.hanging:
                self._woken.wait(60)
            document = self.cri.get(name)
            if name == "ContainerStatus" and document is not None:
                document = document.get(request.container_id)
                if document is None:
                    context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
            if document is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, name)
            return ParseDict(document, answer(), ignore_unknown_fields=True)

        return respond


def _answering(respond: Callable[[Any, Any], Message], request: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(respond, request.FromString, lambda message: message.SerializeToString())


@contextmanager
def node(
    root: Path, certificate: Path, answers: Mapping[str, bytes | int], document: Mapping[str, Any]
) -> Iterator[tuple[KubeletServer, RuntimeServer]]:
    """A kubelet, and a runtime at containerd's place below a root."""
    with (
        KubeletServer(certificate, answers) as kubelet,
        RuntimeServer(root / "run/containerd/containerd.sock", document) as runtime,
    ):
        yield kubelet, runtime
