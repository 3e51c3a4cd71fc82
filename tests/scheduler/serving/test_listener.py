"""The listener against clients that mean no good, and TLS with client certificates."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.serving import listener
from scheduler.serving.listener import ExposedError, Listener, Reply, TlsFiles, is_loopback, listen
from tests.certificates import Authority
from tests.waiting import wait_for


class Echo:
    """Answers with what came in."""

    def answer(self, method: str, path: str, body: bytes) -> Reply:
        return Reply(200, f"{method} {path} {len(body)}".encode(), "text/plain")


@pytest.fixture
def server() -> Iterator[Listener]:
    made = listen(Echo(), "127.0.0.1", 0)
    yield made
    made.shutdown()
    made.server_close()


def exchange(server: Listener, request: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.server_port), 5) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("Content-Length: 1000000000", 413, id="too-long"),
        pytest.param("Content-Length: " + "9" * 5000, 413, id="no-length-anybody-has"),
        pytest.param("Content-Length: -1", 400, id="to-the-end"),
        pytest.param("Content-Length: ²", 400, id="digit-that-is-none"),
        pytest.param("Transfer-Encoding: chunked", 411, id="without-length"),
        pytest.param("Origin: https://example.com\r\nContent-Length: 0", 403, id="from-a-page"),
    ],
)
def test_requests_are_refused_before_their_body_is_read(server: Listener, header: str, status: int) -> None:
    request = f"POST /extender/bind HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n"
    assert exchange(server, request.encode()).startswith(f"HTTP/1.1 {status} ".encode())


def test_one_connection_serves_many_requests(server: Listener) -> None:
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    for size in (0, 5, 100_000):
        client.request("POST", "/x", body=b"x" * size)
        assert client.getresponse().read() == f"POST /x {size}".encode()
    client.close()


def test_connections_are_counted_and_given_back(server: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_free", threading.BoundedSemaphore(2))
    held = [socket.create_connection(("127.0.0.1", server.server_port), 5) for _ in range(2)]
    wait_for(lambda: not server._free._value)  # type: ignore[attr-defined]
    assert exchange(server, b"") == b""
    for connection in held:
        connection.close()
    wait_for(lambda: server._free._value == 2)  # type: ignore[attr-defined]
    assert exchange(server, b"GET /y HTTP/1.0\r\n\r\n").endswith(b"GET /y 0")


def test_a_request_that_does_not_end_is_cut_off(server: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "READ_SECONDS", 0.2)
    started = time.monotonic()
    assert exchange(server, b"POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc") == b""
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("address", "ours_alone"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_addresses_of_this_machine(address: str, ours_alone: bool) -> None:
    assert is_loopback(address) is ours_alone


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_nothing_but_health_is_served_to_others_without_tls(address: str) -> None:
    with pytest.raises(ExposedError, match="--tls-cert"):
        listen(Echo(), address, 0)


def test_health_may_be_served_to_all() -> None:
    made = listen(Echo(), "0.0.0.0", 0, public=True)
    assert exchange(made, b"GET /z HTTP/1.0\r\n\r\n").endswith(b"GET /z 0")
    made.shutdown()
    made.server_close()


def test_tls_needs_a_client_certificate_of_the_authority(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours", "ca"), Authority(tmp_path / "theirs", "ca")
    certificate = ours.issue("server", names=("IP:127.0.0.1",))
    tls = TlsFiles(certificate.certificate, certificate.key, ours.pair.certificate)
    made = listen(Echo(), "127.0.0.1", 0, tls)

    def ask(client: Authority | None) -> bytes:
        context = ssl.create_default_context(cafile=str(ours.pair.certificate))
        if client is not None:
            pair = client.issue("client")
            context.load_cert_chain(pair.certificate, pair.key)
        connection = http.client.HTTPSConnection("127.0.0.1", made.server_port, timeout=5, context=context)
        connection.request("GET", "/x")
        return connection.getresponse().read()

    try:
        assert ask(ours) == b"GET /x 0"
        for stranger in (theirs, None):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                ask(stranger)
        assert ask(ours) == b"GET /x 0"
    finally:
        made.shutdown()
        made.server_close()
