"""HTTP/1.1 as bytes: requests cut from a buffer, answers and chunks built. Only what API clients use."""

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

_PHRASES = {
    200: b"OK",
    201: b"Created",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    409: b"Conflict",
    410: b"Gone",
    415: b"Unsupported Media Type",
    422: b"Unprocessable Entity",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"


class HttpRequest(NamedTuple):
    """A request as received; the path is percent-decoded."""

    method: str
    path: str
    parameters: dict[str, str]
    content_type: str
    body: bytes


class MalformedRequest(Exception):
    """The bytes are no request that this server reads."""


def take_request(buffer: bytearray) -> HttpRequest | None:
    """Cut one whole request off the front of the buffer; None while it is incomplete.

    Raises `MalformedRequest` for a bad request line or a body of unknown length.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(buffer[:end])
    length = int(_header(head, b"content-length") or 0)
    if _header(head, b"transfer-encoding"):
        raise MalformedRequest("chunked request bodies are not read")
    if len(buffer) < end + 4 + length:
        return None
    body = bytes(buffer[end + 4 : end + 4 + length])
    del buffer[: end + 4 + length]
    try:
        method, target, _ = head[: head.find(b"\r\n")].decode("ascii").split(" ")
    except ValueError as error:
        raise MalformedRequest(str(error)) from error
    path, _, query = target.partition("?")
    return HttpRequest(
        method,
        unquote(path) if "%" in path else path,
        dict(parse_qsl(query, keep_blank_values=True)) if query else {},
        _header(head, b"content-type").partition(b";")[0].decode("latin-1"),
        body,
    )


def _header(head: bytes, name: bytes) -> bytes:
    # Clients spell names in any case; lowering a few hundred bytes is cheaper than parsing all headers.
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : len(head) if end < 0 else end].strip()


def answer(status: int, body: bytes, retry_after_seconds: int | None = None) -> bytes:
    """A whole response with a JSON body."""
    extra = b"" if retry_after_seconds is None else b"\r\nRetry-After: %d" % retry_after_seconds
    return b"HTTP/1.1 %d %s\r\nContent-Type: application/json%s\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        _PHRASES.get(status, b"Unknown"),
        extra,
        len(body),
        body,
    )


def chunk(data: bytes) -> bytes:
    """One chunk of a streamed body."""
    return b"%x\r\n%s\r\n" % (len(data), data)
