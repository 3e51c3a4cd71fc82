"""HTTP as no client should speak it, grown from requests that a server answers; and what a server owes to all the same.

PROBES = (Ask("GET", "/healthz"), Ask("POST", "/mutate-pod", b"{}"))

@given(pieces=hostile_requests(PROBES))
def test_...(pieces): survived(door, pieces)

An example is a connection: pieces of bytes, sent one after the other, and then the end of what is sent.
"""

import contextlib
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.hostile_text import damaged

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_REFUSALS = frozenset({501, 503, 504, 505})
"""Statuses of 500 and above that say whose fault it is: a method or version that is not served, or not now."""
_METHODS = ("HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT", "TRACE", "get", "PRI", "X" * 300, "", "\0", "GE T", "é")
_VERSIONS = ("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "HTTP/1.", "HTTP/1.²", "HTTP/" + "1" * 400, "ICY", "")
_TARGETS = (
    "*", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/shadow", "//[", "http://[::1", "/?" + "a&" * 4000, "/\x7f", "/%zz",
    "/%00", "/é", "/\\..\\..", "/?name[]=" + "%ff" * 50, "/" + "a/" * 2000, "?", "/;/..", "/metrics?name[]=up",
)  # fmt: skip
_HEADERS = (
    ("Host", "evil.example"), ("Host", ""), ("Host", "127.0.0.1:0"), ("Host", "[::1"), ("Host", "a" * 9000),
    ("Origin", "null"), ("Connection", "close"), ("Connection", "upgrade"), ("Upgrade", "h2c"),
    ("Expect", "100-continue"), ("Expect", "7"), ("Content-Type", "multipart/form-data; boundary="),
    ("Accept", "application/openmetrics-text; version=1.0.0; escaping=underscores"), ("Accept", "text/plain;version=x"),
    ("Accept", "application/openmetrics-text;version=;escaping"), ("Accept", ";=;,;q=é"), ("Accept-Encoding", "gzip"),
    ("Accept-Encoding", "gzip;q=nan"), ("Authorization", "Bearer " + "x" * 5000), ("Cookie", "\0"), ("A b", "c"),
    (":method", "GET"), ("X-Remote-User", "system:admin"), ("X-Forwarded-For", "127.0.0.1"), ("Range", "bytes=0-"),
    ("", "x"), ("X", "a\r\n b"), ("X", "\x80\xff"), ("Content-Encoding", "gzip"), ("Trailer", "Content-Length"),
    *((f"X-{at}", "y") for at in range(120)),
)  # fmt: skip
_LENGTHS = ("0", "1", "-1", "+5", "5,5", "0x10", "1e3", "²", "9" * 30, str(1 << 31), str(1 << 62), " ", "5 5", "")
_CHUNKED = (
    b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\nx", b"-1\r\nx\r\n", b"5;a=b\r\nhel", b"\r\n\r\n",
    b"2\r\nhello\r\n0\r\n\r\n", b"g\r\n", b"1\r\na\r\n" * 500 + b"0\r\nContent-Length: 9\r\n\r\n",
)  # fmt: skip
_NO_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4",
    b"\0" * 70, b"\r\n" * 50, b"\n", b"GET", b"GET / HTTP/1.1", b" " * 5000, b"\xff" * 300, b"SSH-2.0-x\r\n", b"",
    b"GET / HTTP/1.1\r\nA", b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 3000,
)  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """A request that a server answers with 200."""

    method: str
    target: str
    body: bytes = b""
    host: str = "127.0.0.1"

    def encoded(self) -> bytes:
        """Return the request's bytes; the connection ends with it."""
        head = f"{self.method} {self.target} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body


@dataclass(frozen=True)
class Door:
    """Where a server of ours listens; `context` is of a client with all that is needed to be let in."""

    port: int
    context: ssl.SSLContext | None = None
    server_name: str = "localhost"

    def tell(self, pieces: Sequence[bytes], timeout_seconds: float = 20.0) -> bytes:
        """Send pieces and no more, and return all that comes back until the server ends the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout_seconds) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context is None:
                return _told(plain, pieces)
            with self.context.wrap_socket(plain, server_hostname=self.server_name) as secured:
                return _told(secured, pieces)

    def ask(self, ask: Ask) -> int:
        """Return the status of a sound request."""
        found = _STATUS.match(self.tell([ask.encoded()]))
        return int(found[1]) if found else 0


def _told(connection: socket.socket, pieces: Sequence[bytes]) -> bytes:
    answer = bytearray()
    # A server that refuses a request unread resets the connection: what it said before may be lost.
    with contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
        # Not the TLS socket's own method, which would leave no way to read what comes back.
        socket.socket.shutdown(connection, socket.SHUT_WR)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := connection.recv(1 << 16):
            answer += chunk
    return bytes(answer)


def survived(door: Door, pieces: Sequence[bytes]) -> None:
    """Raise AssertionError where the server takes a client's fault for its own, or shows its insides."""
    answer = door.tell(pieces)
    statuses = [int(status) for status in _STATUS.findall(answer)]
    assert not answer or statuses, f"no HTTP: {answer[:200]!r}"
    faults = [status for status in statuses if status >= 500 and status not in _REFUSALS]
    assert not faults, f"{faults} for {pieces!r}: {answer[:500]!r}"
    assert b"Traceback" not in answer
    assert b'File "/' not in answer


@st.composite
def hostile_requests(draw: st.DrawFn, asks: Sequence[Ask]) -> tuple[bytes, ...]:
    """Pieces of one connection: mostly a sound request with one or two things wrong."""
    if draw(st.integers(0, 9)) == 0:
        data = draw(st.sampled_from(_NO_HTTP))
    else:
        data = b"".join(draw(_request(asks)) for _ in range(draw(st.sampled_from([1, 1, 1, 2, 5]))))
    if draw(st.integers(0, 4)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return tuple(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))


@st.composite
def _request(draw: st.DrawFn, asks: Sequence[Ask]) -> bytes:
    ask = draw(st.sampled_from(list(asks)))
    wrong = draw(st.sets(st.sampled_from(["method", "version", "target", "headers", "length", "body"]), max_size=2))
    method = draw(st.sampled_from(_METHODS)) if "method" in wrong else ask.method
    version = draw(st.sampled_from(_VERSIONS)) if "version" in wrong else "HTTP/1.1"
    target = draw(st.sampled_from(_TARGETS) | damaged([ask.target])) if "target" in wrong else ask.target
    headers = [("Host", ask.host)]
    if "headers" in wrong:
        headers = draw(st.lists(st.sampled_from(_HEADERS), max_size=6)) + draw(st.sampled_from([[], headers]))
    body = ask.body
    if "body" in wrong:
        text = draw(damaged([ask.body.decode("utf-8", "replace") or "{}"]) | st.binary(max_size=200))
        body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if "length" in wrong:
        lengths = draw(st.lists(st.sampled_from(_LENGTHS), max_size=2))
        headers += [("Content-Length", length) for length in lengths]
        if draw(st.booleans()):
            headers.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "gzip, chunked", "identity", " "]))))
            body = draw(st.sampled_from(_CHUNKED))
    else:
        headers.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} {version}".rstrip(" "), *(f"{name}: {value}" for name, value in headers), "", ""]
    end = draw(st.sampled_from(["\r\n"] * 8 + ["\n", "\r"]))
    return end.join(lines).encode("utf-8", "surrogatepass") + body
