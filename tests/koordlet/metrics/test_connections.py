"""The metrics endpoint beside clients that open connections and say nothing."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from koordlet.metrics import connections
from koordlet.metrics.connections import MetricsServer
from tests.certificates import Authority
from tests.waiting import wait_for


def answer(_environment: object, respond: Any) -> list[bytes]:
    respond("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1", 0, answer, most=4)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def asks(server: MetricsServer) -> bytes:
    client = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    with contextlib.closing(client):
        client.request("GET", "/metrics")
        return client.getresponse().read()


def silent(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=30)


def test_silent_connections_take_no_more_threads_than_are_allowed(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENT_SECONDS", 3600.0)
    monkeypatch.setattr(connections._Handler, "timeout", None)
    assert asks(server) == b"ok"
    before = threading.active_count()
    with contextlib.ExitStack() as held:
        for _ in range(50):
            held.enter_context(silent(server))
        wait_for(lambda: server.turned_away >= 46)
        assert threading.active_count() - before <= 4


def test_they_end_by_themselves_and_scrapes_go_on(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections._Handler, "timeout", 0.2)
    with contextlib.ExitStack() as held:
        opened = [held.enter_context(silent(server)) for _ in range(4)]
        assert [one.recv(1) for one in opened] == [b""] * 4
        assert asks(server) == b"ok"


def test_the_longest_makes_room_for_another(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(connections._Handler, "timeout", None)
    with contextlib.ExitStack() as held:
        opened = [held.enter_context(silent(server)) for _ in range(4)]
        wait_for(lambda: len(server._open) == 4)
        assert asks(server) == b"ok"
        assert opened[0].recv(1) == b""


def test_an_answer_that_is_ended_for_another_stays_enciphered(
    server: MetricsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its TLS object a socket sends what is left of an answer in clear text."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
    pair = Authority(tmp_path, "ours").issue("server", names=("IP:127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    near, far = socket.socketpair()
    with far, context.wrap_socket(near, server_side=True, do_handshake_on_connect=False) as oldest:
        server._open = {oldest: 0.0, **{object(): 1.0 for _ in range(3)}}
        assert server._admits(object())
        assert oldest._sslobj is not None
        assert far.recv(1) == b""


def test_a_port_that_is_taken_is_told(server: MetricsServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", server.server_port, answer)


@pytest.mark.parametrize(
    "line", [b"GET /\r\n", b"\x16\x03\x01\r\n", b"GET / HTTP/9\r\n\r\n"], ids=["old", "tls", "odd"]
)
def test_what_is_no_http_gets_a_status_and_a_line(server: MetricsServer, line: bytes) -> None:
    with silent(server) as connection:
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400 ")
    assert b"Python" not in head
    assert body.count(b"\n") == 1
