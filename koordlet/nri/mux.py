"""NRI's multiplexing: several streams of bytes over one socket, each frame headed by stream id and length.

    +----------------+----------------+-----------+
    | stream id (32) | length (32)    | bytes (*) |        big-endian; ids as in containerd/nri pkg/net/multiplex
    +----------------+----------------+-----------+

The other side reads through buffers of 4096 bytes and refuses a frame that does not fit, so none is larger.
"""

import socket
import struct

PLUGIN_STREAM = 1
"""Stream on which the runtime asks the plugin."""
RUNTIME_STREAM = 2
"""Stream on which the plugin asks the runtime."""
MOST_SENT_BYTES = 4096
MOST_BYTES = (4 << 20) + 10
"""Largest frame: one ttrpc message."""
_HEADER = struct.Struct(">II")


class MuxError(ConnectionError):
    """The connection ended, or what came over it is no frame."""


class Mux:
    """One connected socket; `receive` is called by one thread, `send` by any one at a time."""

    def __init__(self, trunk: socket.socket) -> None:
        self._trunk = trunk

    def send(self, stream: int, data: bytes) -> None:
        """Send one message, in as many frames as it needs. Raises OSError."""
        frames = bytearray()
        for start in range(0, len(data), MOST_SENT_BYTES):
            part = data[start : start + MOST_SENT_BYTES]
            frames += _HEADER.pack(stream, len(part)) + part
        self._trunk.sendall(frames)

    def receive(self) -> tuple[int, bytes]:
        """Return stream and bytes of the next frame. Raises MuxError, or TimeoutError where the socket has one."""
        stream, length = _HEADER.unpack(self._exactly(_HEADER.size))
        if length > MOST_BYTES:
            raise MuxError(f"a frame of {length} bytes; at most {MOST_BYTES} are allowed")
        return stream, self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = bytearray(length)
        view, filled = memoryview(data), 0
        while filled < length:
            count = self._trunk.recv_into(view[filled:])
            if count == 0:
                raise MuxError("the other side closed the connection")
            filled += count
        return bytes(data)
