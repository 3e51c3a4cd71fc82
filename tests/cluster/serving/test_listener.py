"""The listener against clients that mean no good, and TLS with client certificates."""

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.serving import TEXT, Bounds, ExposedError, Listener, Reply, Request, TlsFiles, is_loopback, listen
from cluster.serving import listener as listener_module
from cluster.serving import tls as tls_module
from tests.certificates import Authority
from tests.waiting import wait_for


class Echo:
    """Answers with what came in."""

    def answer(self, request: Request) -> Reply:
        if request.path == "/fault":
            raise LookupError("secret")
        sender = f" of {request.client_name}" if request.client_name else ""
        return Reply(200, f"{request.method} {request.path} {len(request.body)}{sender}".encode(), TEXT)


@contextlib.contextmanager
def serving(bounds: Bounds | None = None, tls: TlsFiles | None = None) -> Iterator[Listener]:
    made = listen(Echo(), "127.0.0.1", 0, tls=tls, bounds=bounds)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def server() -> Iterator[Listener]:
    with serving() as made:
        yield made


def exchange(server: Listener, request: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
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
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    for size in (0, 5, 100_000):
        client.request("POST", "/x", body=b"x" * size)
        assert client.getresponse().read() == f"POST /x {size}".encode()
    client.close()


def test_the_query_is_no_part_of_the_path(server: Listener) -> None:
    assert exchange(server, b"GET /x?timeout=5s HTTP/1.0\r\n\r\n").endswith(b"GET /x 0")
    assert exchange(server, b"GET //[ HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    with serving(Bounds(connections=2, connections_by_address=2)) as made:
        held = [socket.create_connection(("127.0.0.1", made.port), 5) for _ in range(2)]
        wait_for(lambda: len(made.connections) == 2)
        assert exchange(made, b"GET /y HTTP/1.0\r\n\r\n").endswith(b"GET /y 0")
        assert held[0].recv(1) == b""
        for connection in held:
            connection.close()
        wait_for(lambda: not len(made.connections))


def test_a_request_that_does_not_end_is_cut_off() -> None:
    with serving(Bounds(request_seconds=0.2)) as made:
        assert exchange(made, b"POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc") == b""
        assert exchange(made, b"GET /x HTTP/1.1\r\nHost: a") == b""


def test_a_connection_without_requests_is_cut_off() -> None:
    with serving(Bounds(idle_seconds=1.0)) as made:
        assert exchange(made, b"GET /x HTTP/1.1\r\n\r\n").endswith(b"GET /x 0")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", 431, id="long-line"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", 431, id="many-headers"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"b" * 5000 + b"\r\n\r\n", 431, id="long-header"),
        pytest.param(b"DELETE / HTTP/1.1\r\n\r\n", 501, id="method"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", 505, id="version"),
        pytest.param(b"GET /fault HTTP/1.0\r\n\r\n", 500, id="fault"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, id="two-lengths"),
    ],
)
def test_what_is_not_served_gets_a_line(request_bytes: bytes, status: int) -> None:
    with serving(Bounds(header_bytes=4096)) as made:
        answer = exchange(made, request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"secret" not in answer
        assert answer.partition(b"\r\n\r\n")[2].count(b"\n") == 1


def test_headers_have_their_size_anew_for_each_request() -> None:
    with serving(Bounds(header_bytes=300)) as made:
        client = http.client.HTTPConnection("127.0.0.1", made.port, timeout=5)
        for _ in range(5):
            client.request("GET", "/x", headers={"A": "b" * 100})
            assert client.getresponse().read() == b"GET /x 0"
        client.close()


@pytest.mark.parametrize(
    ("address", "ours_alone"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_addresses_of_this_machine(address: str, ours_alone: bool) -> None:
    assert is_loopback(address) is ours_alone


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_nothing_but_health_is_served_to_others_without_tls(address: str) -> None:
    with pytest.raises(ExposedError, match="TLS files"):
        listen(Echo(), address, 0)


def test_health_may_be_served_to_all() -> None:
    made = listen(Echo(), "0.0.0.0", 0, public=True)
    assert exchange(made, b"GET /z HTTP/1.0\r\n\r\n").endswith(b"GET /z 0")
    made.stop()


def ask(port: int, authority: Authority, client: Authority | None, subject: str = "") -> bytes:
    """The answer over TLS, with a client certificate where there is an authority for it."""
    context = ssl.create_default_context(cafile=str(authority.pair.certificate))
    if client is not None:
        pair = client.issue("client", subject)
        context.load_cert_chain(pair.certificate, pair.key)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    connection.request("GET", "/x")
    return connection.getresponse().read()


REFUSALS = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)


def test_tls_needs_a_client_certificate_of_the_authority_and_says_its_name(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours", "ca"), Authority(tmp_path / "theirs", "ca")
    certificate = ours.issue("server", names=("IP:127.0.0.1",))
    files = TlsFiles(certificate.certificate, certificate.key, ours.pair.certificate)
    with serving(tls=files) as made:
        assert ask(made.port, ours, ours, "/O=system:masters/CN=descheduler") == b"GET /x 0 of descheduler"
        assert ask(made.port, ours, ours, "/CN=one/CN=two") == b"GET /x 0"
        for stranger in (theirs, None):
            with pytest.raises(REFUSALS):
                ask(made.port, ours, stranger)


def test_replaced_files_are_taken_into_use_and_torn_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "RELOAD_SECONDS", 0.05)
    first, second = Authority(tmp_path / "first", "ca"), Authority(tmp_path / "second", "ca")
    pair = first.issue("server", names=("IP:127.0.0.1",))
    files = TlsFiles(pair.certificate, pair.key)
    with serving(tls=files) as made:
        assert ask(made.port, first, None) == b"GET /x 0"
        new = second.issue("server", names=("IP:127.0.0.1",))
        pair.certificate.write_text("torn")
        time.sleep(0.6)
        assert ask(made.port, first, None) == b"GET /x 0"
        pair.certificate.write_bytes(new.certificate.read_bytes())
        pair.key.write_bytes(new.key.read_bytes())

        def renewed() -> bool:
            with contextlib.suppress(*REFUSALS):
                return ask(made.port, second, None) == b"GET /x 0"
            return False

        wait_for(renewed)


def test_a_connection_that_was_ended_before_its_handshake_stays_ended() -> None:
    server, client = socket.socketpair()
    held = listener_module._OpenSocket(server)
    secured = socket.socket(fileno=server.detach())
    held.end()
    held.replace(secured)
    client.settimeout(5)
    assert client.recv(1) == b""
    secured.close()
    client.close()


def test_a_connection_that_is_ended_from_outside_stays_enciphered(tmp_path: Path) -> None:
    """Without its TLS object a socket sends what is left of an answer in clear text."""
    pair = Authority(tmp_path, "ca").issue("server", names=("IP:127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    near, far = socket.socketpair()
    with far, context.wrap_socket(near, server_side=True, do_handshake_on_connect=False) as secured:
        listener_module._OpenSocket(secured).end()
        assert secured._sslobj is not None
        assert far.recv(1) == b""
