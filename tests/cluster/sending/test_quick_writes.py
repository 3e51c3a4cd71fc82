"""Writes that wait for no answer, against the in-process API server and against peers that answer badly."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import PODS, Client, Key
from cluster.errors import Unavailable
from cluster.sending.quick_writes import QuickWrites, answer_length
from cluster.transport import Request
from cluster.twin import UNLIMITED, Fault, FaultType, Twin
from tests.waiting import wait_for

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


def deletion(name: str) -> Request:
    body = b'{"apiVersion": "v1", "kind": "DeleteOptions"}'
    return Request("DELETE", PODS.object_path(Key("default", name)), body=body)


def collected(writes: QuickWrites[Request, str]) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []

    def done() -> bool:
        found.extend(writes.collect(0.01))
        return not writes.in_flight

    wait_for(done)
    return found


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as made:
        container = {"name": "c", "image": "i"}
        made.load(
            PODS,
            [
                {"metadata": {"name": f"p{n}", "namespace": "default"}, "spec": {"containers": [container]}}
                for n in range(20)
            ],
        )
        yield made


def test_writes_are_made_and_told_apart(twin: Twin) -> None:
    with Client(twin.endpoint(), UNLIMITED) as client:
        writes = client.quick_writes(4)
        found: dict[str, bool] = {}
        for name in [*(f"p{n}" for n in range(20)), "none"]:
            wait_for(lambda: found.update(writes.collect(0.01)) or writes.has_room())
            assert writes.send(name, deletion(name))
        found |= dict(collected(writes))
        assert found == {**{f"p{n}": True for n in range(20)}, "none": False}
        assert not twin.objects(PODS)
        assert writes.connections <= 4
        writes.close()


def test_every_write_is_observed(twin: Twin) -> None:
    heard: list[tuple[str, int]] = []
    twin.faults.add(Fault(FaultType.DROP, frozenset({"delete"}), times=1))
    with Client(twin.endpoint(), UNLIMITED, observe=lambda method, status, _: heard.append((method, status))) as client:
        writes = client.quick_writes(1)
        for name in ("p0", "p1", "none"):
            wait_for(writes.has_room)
            assert writes.send(name, deletion(name))
            collected(writes)
        writes.close()
    assert heard == [("DELETE", 0), ("DELETE", 200), ("DELETE", 404)]


def test_nothing_is_sent_that_may_not_be(twin: Twin) -> None:
    with Client(twin.endpoint(), UNLIMITED, may_write=lambda: False) as client:
        writes = client.quick_writes(1)
        wait_for(writes.has_room)
        assert not writes.send("p", deletion("p0"))
        assert writes.in_flight == 0
        assert len(twin.objects(PODS)) == 20
        writes.close()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultType.ERROR, frozenset({"delete"}), times=1, status=503),
        Fault(FaultType.DROP, frozenset({"delete"}), times=1),
        Fault(FaultType.DROP, frozenset({"delete"}), times=1, after=True),
    ],
    ids=["error", "lost", "answer-lost"],
)
def test_what_fails_is_given_back(twin: Twin, fault: Fault) -> None:
    twin.faults.add(fault)
    with Client(twin.endpoint(), UNLIMITED) as client:
        writes = client.quick_writes(1)
        wait_for(writes.has_room)
        assert writes.send("a", deletion("p0"))
        assert collected(writes) == [("a", False)]
        # The next one goes over another connection where the first ended.
        wait_for(writes.has_room)
        assert writes.send("b", deletion("p1"))
        assert collected(writes) == [("b", True)]
        writes.close()


def test_a_server_that_is_away_gives_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asked: list[int] = []

    def refuse() -> socket.socket:
        asked.append(port)
        raise Unavailable("refused", ambiguous=False)

    writes: QuickWrites[Request, str] = QuickWrites(refuse, lambda _: b"", 4, 1.0)
    for _ in range(50):
        assert not writes.has_room()
    wait_for(lambda: len(asked) == 1)
    assert not writes.send("a", deletion("p"))
    writes.close()


@contextmanager
def peer(timeout_seconds: float = 10.0) -> Iterator[tuple[QuickWrites[Request, str], socket.socket]]:
    """Writes over one connection, and its other end."""
    near, far = socket.socketpair()
    writes: QuickWrites[Request, str] = QuickWrites(lambda: near, lambda _: b"request", 1, timeout_seconds)
    with far:
        wait_for(writes.has_room)
        yield writes, far
        writes.close()


def test_an_answer_may_come_in_pieces() -> None:
    with peer() as (writes, far):
        assert writes.send("a", deletion("p"))
        assert far.recv(100) == b"request"
        for place in range(len(OK)):
            assert writes.in_flight == 1
            far.sendall(OK[place : place + 1])
            found = writes.collect(5.0)
        assert found == [("a", True)]
        assert writes.has_room()


def test_an_answer_that_does_not_come_is_given_up() -> None:
    with peer(timeout_seconds=0.05) as (writes, _):
        assert writes.send("a", deletion("p"))
        assert collected(writes) == [("a", False)]
        assert writes.connections == 0


def test_a_connection_whose_answer_is_late_ends_although_nothing_is_collected() -> None:
    with peer(timeout_seconds=0.05) as (writes, far):
        assert writes.send("a", deletion("p"))
        assert far.recv(100) == b"request"
        far.settimeout(60.0)
        assert far.recv(100) == b""
        assert collected(writes) == [("a", False)]


@pytest.mark.parametrize(
    "said",
    [b"", OK, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"],
    ids=["end", "answer", "timeout"],
)
def test_a_connection_that_speaks_unasked_is_closed(said: bytes) -> None:
    with peer() as (writes, far):
        far.sendall(said)
        far.shutdown(socket.SHUT_WR)
        wait_for(lambda: not writes.collect(0.01) and writes.connections == 0)


@pytest.mark.parametrize(
    ("begin", "length"),
    [
        pytest.param(OK, len(OK), id="whole"),
        pytest.param(OK[:20], None, id="begun"),
        pytest.param(b"HTTP/1.1 409 Conflict\r\ncontent-LENGTH:  3\r\n\r\n", 48, id="refusal"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "parts", id="chunks"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", "the last one", id="the-last"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", "without a length", id="no-length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n", "without a length", id="negative"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", "begins with", id="no-content"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", "begins with", id="on-the-way"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "begins with", id="version-1.0"),
    ],
)
def test_the_length_of_answers(begin: bytes, length: int | str | None) -> None:
    if isinstance(length, str):
        with pytest.raises(ValueError, match=length):
            answer_length(begin)
    else:
        assert answer_length(begin) == length


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", OK[:30]]))
def test_whatever_comes_is_an_answer_or_is_given_back(said: bytes, begin: bytes) -> None:
    with peer() as (writes, far):
        assert writes.send("a", deletion("p"))
        far.sendall(begin + said)
        far.shutdown(socket.SHUT_WR)
        found: list[tuple[str, bool]] = []
        while writes.connections:
            found += writes.collect(1.0)
        assert [token for token, _ in found] == ["a"]


def test_another_thread_ends_the_wait() -> None:
    with peer() as (writes, _):
        assert writes.send("a", deletion("p"))
        waker = threading.Timer(0.05, writes.wake)
        waker.start()
        # Without the wake this would take ten minutes.
        assert writes.collect(600.0) == []
        waker.join()
        # One that came before the wait ends it too, once.
        writes.wake()
        assert writes.collect(600.0) == []
        assert writes.collect(0.01) == []
