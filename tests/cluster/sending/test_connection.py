"""A connection for writes against peers that answer in every way HTTP/1.1 has, and in ways that it has not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.sending.connection import BrokenError, Connection

BODY = b'{"kind":"Status"}'
WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: 17\r\nRetry-After: 3\r\n\r\n" + BODY

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def connected(said: bytes, *, closes: bool = True) -> Iterator[Connection]:
    """A connection whose peer has said all that it says."""
    near, far = socket.socketpair()
    with far:
        teller = threading.Thread(target=_tell, args=(far, said, closes), daemon=True)
        teller.start()
        connection = Connection(near)
        yield connection
        connection.close()
        teller.join(10)


def _tell(far: socket.socket, said: bytes, closes: bool) -> None:
    try:
        far.sendall(said)
        if closes:
            far.shutdown(socket.SHUT_WR)
    except OSError:  # the near side went first
        return


@pytest.mark.parametrize(
    ("said", "status", "body", "reusable"),
    [
        pytest.param(WHOLE, 201, BODY, True, id="length"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True, id="no-content"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 17\r\n\r\n", 304, b"", True, id="not-modified"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length:2\r\nConnection: Close\r\n\r\n{}", 200, b"{}", False, id="the-last"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}", False, id="version-1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end", False, id="until-the-end"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE, 201, BODY, True, id="told-on-the-way"),
        pytest.param(
            CHUNKED + b"4;a=b\r\nabcd\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
            200,
            b"abcd0123456789",
            True,
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", 200, b"{}", True, id="bare-newlines"),
    ],
)
def test_answers_are_read_to_their_end(said: bytes, status: int, body: bytes, reusable: bool) -> None:
    with connected(said) as connection:
        answer = connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 10.0)
    assert (answer.status, answer.body, answer.reusable) == (status, body, reusable)


def test_one_connection_carries_one_request_after_the_other() -> None:
    with connected(WHOLE + CHUNKED + b"1\r\nx\r\n0\r\n\r\n" + WHOLE) as connection:
        answers = [connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 10.0) for _ in range(3)]
    assert [answer.body for answer in answers] == [BODY, b"x", BODY]
    assert answers[0].headers["Retry-After"] == "3"


def test_a_connection_that_said_more_than_its_answer_carries_no_other_request() -> None:
    with connected(WHOLE + WHOLE, closes=False) as connection:
        answer = connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 10.0)
    assert (answer.status, answer.body, answer.reusable) == (201, BODY, False)


def test_an_answer_that_comes_before_the_whole_request_is_read_is_told() -> None:
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 17\r\nConnection: close\r\n\r\n" + BODY
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        connection = Connection(near)
        far.sendall(refusal)
        far.close()
        answer = connection.exchange(b"x" * (16 << 20), 60.0)
        connection.close()
    assert (answer.status, answer.body, answer.reusable) == (413, BODY, False)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-Le", id="half-a-head"),
        pytest.param(WHOLE[:-1], id="half-a-body"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another-protocol"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no-status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="negative-length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789", id="odd-length"),
        pytest.param(CHUNKED + b"zz\r\n", id="no-chunk"),
        pytest.param(CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", id="long-chunk"),
        pytest.param(CHUNKED + b"5\r\nab", id="half-a-chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\nab", id="huge-length"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000, id="too-many-headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000, id="too-long-a-header"),
    ],
)
def test_what_is_no_answer_is_an_error(said: bytes) -> None:
    with connected(said) as connection, pytest.raises(BrokenError):
        connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 10.0)


def test_silence_is_an_error() -> None:
    with connected(WHOLE[:20], closes=False) as connection, pytest.raises(TimeoutError):
        connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 0.05)


@given(st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", WHOLE[:40]]))
def test_whatever_a_peer_says_is_an_answer_or_an_error(said: bytes, begin: bytes) -> None:
    with connected(begin + said) as connection:
        try:
            answer = connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 10.0)
        except BrokenError:
            return
    assert 0 <= answer.status <= 999
