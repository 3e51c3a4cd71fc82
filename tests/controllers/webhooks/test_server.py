"""The server with real sockets: reviews, hostile clients, and all of it together against the twin."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.crds import CLUSTER_COLOCATION_PROFILE, ELASTIC_QUOTA, definition_document
from cluster import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PRIORITY_CLASSES, SECRETS, Client, Key, custom
from cluster.serving import Listener
from cluster.twin import UNLIMITED, Twin
from controllers.webhooks.certificates import Pair, issue, load, server_context
from controllers.webhooks.rotation import decoded
from controllers.webhooks.routes import Reply, reply
from controllers.webhooks.serve import Webhooks
from controllers.webhooks.server import webhook_listener
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks import spark
from tests.controllers.webhooks.reviews import pod
from tests.waiting import wait_for

LOCAL = WebhookSettings(address="127.0.0.1", port=0, most_connections=3, request_seconds=1.0, idle_seconds=2.0)
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}, "namespace": "n", "object": pod()},
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return issue(("localhost",), 1)


@pytest.fixture
def server(pair: Pair) -> Iterator[Listener]:
    context = server_context()
    load(context, pair)

    def answer(path: str, body: bytes) -> Reply:
        return reply(path, body, ClusterView, frozenset())

    running = webhook_listener(LOCAL, context, answer)
    running.start()
    yield running
    running.stop()


def client_context(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate)


@contextlib.contextmanager
def connected(port: int, certificate: str, name: str = "localhost") -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        client_context(certificate).wrap_socket(plain, server_hostname=name) as secured,
    ):
        yield secured


def asked(
    opened: ssl.SSLSocket, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("localhost")
    connection.sock = opened
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_connection_serves_many_reviews(server: Listener, pair: Pair) -> None:
    with connected(server.port, pair.certificate) as opened:
        for _ in range(3):
            status, body = asked(opened, "POST", "/validate-pod?timeout=5s", msgspec.json.encode(REVIEW))
            assert status == 200
            assert msgspec.json.decode(body)["response"] == {"uid": "u", "allowed": True}
        assert asked(opened, "GET", "/healthz") == (200, b"ok")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_protocols_are_refused(server: Listener) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(plain)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        pytest.param("POST", "/validate-pod", b"{", {}, 400, id="no-review"),
        pytest.param("POST", "/nothing", b"{}", {}, 404, id="no-path"),
        pytest.param("POST", "/validate-pod", None, {"Content-Length": str(9 << 20)}, 413, id="too-long"),
        pytest.param("POST", "/validate-pod", None, {"Content-Length": "-1"}, 400, id="negative-length"),
        pytest.param("POST", "/validate-pod", None, {"Transfer-Encoding": "chunked"}, 411, id="chunked"),
        pytest.param("PUT", "/validate-pod", b"{}", {}, 405, id="method"),
        pytest.param("GET", "/validate-pod", None, {}, 404, id="get"),
    ],
)
def test_other_requests_get_a_line(
    server: Listener, pair: Pair, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    with connected(server.port, pair.certificate) as opened:
        found, text = asked(opened, method, path, body, **headers)
    assert found == status
    assert b"Traceback" not in text
    assert text.count(b"\n") == 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"POST /validate-pod HTTP/1.1\r\nHost: a\r\n", id="headers-never-end"),
        pytest.param(b"POST /validate-pod HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", id="body-never-ends"),
        pytest.param(b"\x00\x01\x02\r\n\r\n", id="no-http"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="http-9"),
        pytest.param(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", id="long-line"),
    ],
)
def test_a_client_that_does_not_speak_is_left(server: Listener, pair: Pair, sent: bytes) -> None:
    with connected(server.port, pair.certificate) as opened:
        opened.sendall(sent)
        text = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while chunk := opened.recv(4096):
                text += chunk
    assert b"Traceback" not in text


def test_a_handshake_that_never_comes_ends(server: Listener) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        assert plain.recv(1) == b""


def test_a_handshake_that_drips_ends_at_its_time(pair: Pair) -> None:
    context = server_context()
    load(context, pair)
    patient = WebhookSettings(address="127.0.0.1", port=0, request_seconds=1.0, idle_seconds=300.0)
    running = webhook_listener(patient, context, lambda *_: Reply(200, b"", "allowed"))
    running.start()
    try:
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as plain:
            # The head of a handshake message of 512 bytes, which never come.
            plain.sendall(b"\x16\x03\x01\x02\x00")
            assert plain.recv(1) == b""
    finally:
        running.stop()


def test_idle_connections_hold_no_place(server: Listener, pair: Pair) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(server.port, pair.certificate))
        with connected(server.port, pair.certificate) as opened:
            assert asked(opened, "GET", "/readyz")[0] == 200
        assert server.connections.dropped == 1


def test_a_server_without_certificate_serves_nothing_and_stops() -> None:
    running = webhook_listener(LOCAL, server_context(), lambda *_: Reply(200, b"", "allowed"))
    running.start()
    with pytest.raises((OSError, ssl.SSLError)), connected(running.port, issue(("localhost",), 1).certificate):
        pass
    running.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("webhook-")]


def test_all_of_it_against_an_api_server() -> None:
    settings = WebhookSettings(address="127.0.0.1", port=0)
    registry = CollectorRegistry()
    with Twin() as twin, Client(twin.endpoint(), UNLIMITED) as client:
        for definition in (CLUSTER_COLOCATION_PROFILE, ELASTIC_QUOTA):
            client.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        client.create(PRIORITY_CLASSES, {"metadata": {"name": "koord-batch"}, "value": 5000})
        client.create(custom(CLUSTER_COLOCATION_PROFILE), spark.PROFILE)
        webhooks = Webhooks(client, settings, registry)
        webhooks.start()
        try:
            wait_for(lambda: webhooks.ready, 30)
            kept = decoded(client.get(SECRETS, Key(settings.namespace, settings.secret)))
            assert kept.current is not None
            # The namespace comes after the first lists, and its pod before the watch may tell of it.
            client.create(NAMESPACES, spark.NAMESPACE)
            request: dict[str, Any] = REVIEW["request"] | {  # type: ignore[operator]
                "namespace": "spark-job",
                "object": spark.spark_pod("driver", "1", "1Gi"),
            }
            with connected(webhooks.port, kept.bundle, settings.server_names[0]) as opened:
                body = msgspec.json.encode(REVIEW | {"request": request})
                status, text = asked(opened, "POST", "/mutate-pod", body)
            assert status == 200
            response = msgspec.json.decode(text)["response"]
            assert response["allowed"]
            assert response["patch"]
        finally:
            webhooks.stop()
    assert b'koord_manager_webhook_duration_seconds_count{path="/mutate-pod",result="allowed"} 1.0' in generate_latest(
        registry
    )
