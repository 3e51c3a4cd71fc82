"""One HTTP/1.1 connection that stays open, for writes: a small request out, one answer in.

The general client makes an object for each header and parses answers as mail, 0.3 ms of CPU time in all; a scheduler
binds hundreds of pods a second. Names and TLS are the general client's work: it opens the socket.
"""

import socket
from collections.abc import Mapping
from typing import NamedTuple

MAX_LINE_BYTES = 65_536
MAX_LINES = 200
MAX_BODY_BYTES = 1 << 28
"""Longer than any object, and than a page of a list."""


class BrokenError(OSError):
    """The connection ended amid an answer, or what came is no HTTP."""


class Answer(NamedTuple):
    """An answer. Names of headers are capitalized, as in `Retry-After`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool
    """The connection may carry another request."""


class Connection:
    """Sends requests over one socket, one after the other. Not shared between threads."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._answers = opened.makefile("rb")

    def exchange(self, request: bytes, silence_seconds: float) -> Answer:
        """Send a whole request other than HEAD, and read its answer.

        Raises OSError (`BrokenError`, `TimeoutError` after `silence_seconds` without a byte) when there is none; the
        server may have acted.
        """
        self.socket.settimeout(silence_seconds)
        try:
            self.socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError) as refused:
            # A server that answers before it has read a long request says why, and closes.
            try:
                return self._answer()._replace(reusable=False)
            except OSError:
                raise refused from None
        answer = self._answer()
        return answer._replace(reusable=False) if answer.reusable and self._said_more() else answer

    def _answer(self) -> Answer:
        status, headers = self._head()
        while 100 <= status < 200:
            # What the server tells on the way; the answer follows.
            status, headers = self._head()
        keeps = headers.get("Connection", "").lower() != "close"
        if status in (204, 304):
            return Answer(status, headers, b"", keeps)
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            return Answer(status, headers, self._chunks(), keeps)
        if "Content-Length" in headers:
            return Answer(status, headers, self._exactly(_number(headers["Content-Length"], 10)), keeps)
        return Answer(status, headers, self._answers.read(), reusable=False)

    def close(self) -> None:
        """Give the connection up."""
        self._answers.close()
        self.socket.close()

    def _said_more(self) -> bool:
        """Return whether the server said more than the answer, which the next request would take for its own."""
        self.socket.settimeout(0.0)
        try:
            return bool(self._answers.peek(1))
        except OSError:  # nothing has come over TLS, or the end
            return False

    def _head(self) -> tuple[int, dict[str, str]]:
        version, _, rest = self._line().partition(b" ")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise BrokenError(f"answer begins with {version[:40]!r}")
        status = _number(rest[:3].decode("latin-1"), 10)
        headers: dict[str, str] = {"Connection": "close"} if version == b"HTTP/1.0" else {}
        for _ in range(MAX_LINES):
            line = self._line()
            if not line:
                return status, headers
            name, _, value = line.partition(b":")
            headers[name.title().decode("latin-1")] = value.strip().decode("latin-1")
        raise BrokenError("answer has too many headers")

    def _line(self) -> bytes:
        line = self._answers.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise BrokenError("connection ended amid an answer" if len(line) < MAX_LINE_BYTES else "line too long")
        return line.rstrip(b"\r\n")

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := _number(self._line().partition(b";")[0].strip().decode("latin-1"), 16):
            parts.append(self._exactly(size))
            if self._line():
                raise BrokenError("chunk is longer than it says")
        while self._line():
            pass
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        if size > MAX_BODY_BYTES:
            raise BrokenError(f"answer of {size} bytes")
        data = self._answers.read(size)
        if len(data) < size:
            raise BrokenError("connection ended amid an answer")
        return data


def _number(text: str, base: int) -> int:
    # int() takes signs, underscores and spaces too.
    if not text.isalnum() or not text.isascii():
        raise BrokenError(f"{text[:40]!r} is no number")
    try:
        return int(text, base)
    except ValueError as error:
        raise BrokenError(f"{text[:40]!r} is no number") from error
