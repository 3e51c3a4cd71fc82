"""Bytes of HTTP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.twin.http_messages import HttpRequest, MalformedRequest, answer, chunk, take_request

GET = b"GET /api/v1/pods?limit=5&labelSelector=a%3Db%2Cc&continue= HTTP/1.1\r\nHost: h\r\n\r\n"
POST = (
    b"POST /a%2Fb HTTP/1.1\r\nhost: h\r\nCONTENT-TYPE: application/json; charset=utf-8\r\n"
    b'content-length: 7\r\n\r\n{"a":1}'
)


def test_a_request_is_cut_off_the_front() -> None:
    buffer = bytearray(GET + POST + b"GET /rest")
    first = take_request(buffer)
    assert first == HttpRequest(
        "GET", "/api/v1/pods", {"limit": "5", "labelSelector": "a=b,c", "continue": ""}, "", b""
    )
    assert take_request(buffer) == HttpRequest("POST", "/a/b", {}, "application/json", b'{"a":1}')
    assert take_request(buffer) is None
    assert buffer == b"GET /rest"


@given(st.lists(st.integers(1, 40), max_size=30))
def test_it_does_not_matter_how_the_bytes_arrive(sizes: list[int]) -> None:
    stream, buffer, taken = GET + POST + GET, bytearray(), []
    for size in [*sizes, len(stream)]:
        buffer += stream[:size]
        stream = stream[size:]
        while (request := take_request(buffer)) is not None:
            taken.append(request.method)
    assert taken == ["GET", "POST", "GET"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"nonsense\r\n\r\n", id="no-request-line"),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", id="chunked"),
        pytest.param(b"GET / x HTTP/1.1\r\n\r\n", id="space-in-path"),
    ],
)
def test_what_is_not_read_is_said(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        take_request(bytearray(data))


def test_answers_state_their_length() -> None:
    assert answer(201, b"{}") == (
        b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"\r\nRetry-After: 3\r\n" in answer(429, b"", 3)
    assert chunk(b"0123456789abcdef") == b"10\r\n0123456789abcdef\r\n"
