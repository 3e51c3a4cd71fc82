"""ttrpc, unary calls only: messages of a 10-byte header and a protobuf, over streams of a `Mux`.

    +-------------+----------------+----------+-----------+----------+
    | length (32) | stream id (32) | type (8) | flags (8) | data (*) |        big-endian; containerd/ttrpc PROTOCOL.md
    +-------------+----------------+----------+-----------+----------+

One thread serves a connection: it answers the runtime's calls, and takes the answers to its own on the way.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from koordlet.nri.mux import PLUGIN_STREAM, RUNTIME_STREAM, Mux, MuxError
from koordlet.nri.ttrpc_pb2 import Request, Response, Status

REQUEST, RESPONSE = 1, 2
MOST_BYTES = 4 << 20
UNIMPLEMENTED, INTERNAL = 12, 13
"""Codes of gRPC."""
_HEADER = struct.Struct(">IIBB")
M = TypeVar("M", bound=ProtobufMessage)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; a client's stream ids are odd."""

    stream: int
    kind: int
    data: bytes


class Reassembly:
    """Messages out of the frames of one stream, which may cut them anywhere."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete now. Raises MuxError for one that is too large."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            length, stream, kind, _flags = _HEADER.unpack_from(self._bytes)
            if length > MOST_BYTES:
                raise MuxError(f"a message of {length} bytes; at most {MOST_BYTES} are allowed")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            message = Message(stream, kind, bytes(self._bytes[_HEADER.size : end]))
            del self._bytes[:end]
            yield message


def encode(stream: int, kind: int, data: bytes) -> bytes:
    """Return a message as bytes."""
    return _HEADER.pack(len(data), stream, kind, 0) + data


class CallRefused(Exception):
    """The other side answered a call with an error."""


Handler = Callable[[str, bytes], bytes | None]
"""Answers a method with a payload; None where there is no such method."""


def _message(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MuxError(f"the other side sent what is no {kind.DESCRIPTOR.name}") from error


class Connection:
    """Both services of one connection: that of the plugin, asked by the runtime, and that of the runtime."""

    def __init__(self, mux: Mux, service: str, handler: Handler) -> None:
        """`service` is the full name of the plugin's service."""
        self._mux = mux
        self._service = service
        self._handler = handler
        self._incoming = {PLUGIN_STREAM: Reassembly(), RUNTIME_STREAM: Reassembly()}
        self._next_stream = 1
        self._answers: dict[int, str] = {}
        self.answered = 0
        """Calls of the runtime that were answered."""

    def call(self, service: str, method: str, payload: bytes, timeout_seconds: float) -> None:
        """Send a call to the runtime; `receive` takes its answer. Raises OSError."""
        request = Request(
            service=service, method=method, payload=payload, timeout_nano=int(timeout_seconds * 1_000_000_000)
        )
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._answers[stream] = method
        self._mux.send(RUNTIME_STREAM, encode(stream, REQUEST, request.SerializeToString()))

    def receive(self) -> None:
        """Take one frame and answer what it completes.

        Raises MuxError and OSError where the connection ended, CallRefused where the runtime refuses a call of ours.
        """
        stream, data = self._mux.receive()
        reassembly = self._incoming.get(stream)
        if reassembly is None:
            return  # other streams are for other uses
        for message in reassembly.add(data):
            if stream == PLUGIN_STREAM and message.kind == REQUEST:
                self._mux.send(PLUGIN_STREAM, encode(message.stream, RESPONSE, self._answer(message.data)))
                self.answered += 1
            elif stream == RUNTIME_STREAM and message.kind == RESPONSE:
                self._take_answer(message)

    def _answer(self, data: bytes) -> bytes:
        request = _message(Request, data)
        payload = self._handler(request.method, request.payload) if request.service == self._service else None
        if payload is not None:
            return Response(payload=payload).SerializeToString()
        unknown = Status(code=UNIMPLEMENTED, message=f"{request.service}/{request.method} is not served here")
        return Response(status=unknown).SerializeToString()

    def _take_answer(self, message: Message) -> None:
        method = self._answers.pop(message.stream, None)
        response = _message(Response, message.data)
        if method is not None and response.status.code:
            raise CallRefused(f"{method}: {response.status.message} (code {response.status.code})")
