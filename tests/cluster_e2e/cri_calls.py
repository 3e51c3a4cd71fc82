"""Calls of the Container Runtime Interface as a kubelet makes them: sandboxes on the host's network, busybox in them.

Messages are encoded by hand: a handful of fields is all that a test needs.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import grpc

from tests.cluster_e2e.cgroup_layout import cgroup_parent
from tests.cluster_e2e.images import BUSYBOX
from tests.waiting import wait_for

_SERVICE = "/runtime.v1.RuntimeService"
_NODE_NETWORK = 2


def field(number: int, value: bytes | str | int) -> bytes:
    """Return one field of a message: a number, or a text or message with its length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def entries(number: int, mapping: Mapping[str, str]) -> bytes:
    """Return a map of texts."""
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in mapping.items())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def first_text(message: bytes) -> str:
    """Return the text of a message's first field, as answers have ids."""
    length, shift, at = 0, 0, 1
    while True:
        byte = message[at]
        length |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return message[at : at + length].decode()


class Cri:
    """A client of one runtime; what it made is removed by `close`."""

    def __init__(self, socket: Path, logs: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._logs = logs
        self._sandboxes: list[str] = []

    def _call(self, method: str, request: bytes) -> bytes:
        call: Callable[..., bytes] = self._channel.unary_unary(f"{_SERVICE}/{method}")
        return call(request, timeout=60)

    def sandbox(
        self,
        name: str,
        parent: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> tuple[str, bytes]:
        """Run a pod's sandbox below the cgroup `parent`; return its id and its config."""
        metadata = field(1, name) + field(2, name) + field(3, "default")
        network = field(2, field(1, field(1, _NODE_NETWORK)))
        config = (
            field(1, metadata) + field(3, str(self._logs)) + entries(6, labels or {}) + entries(7, annotations or {})
        )
        config += field(8, field(1, cgroup_parent(parent)) + network)
        sandbox = first_text(self._call("RunPodSandbox", field(1, config)))
        self._sandboxes.append(sandbox)
        return sandbox, config

    def create(self, sandbox: tuple[str, bytes], name: str, command: Iterable[str]) -> str:
        """Create a container and return its id; its output goes to `<logs>/<name>.log`."""
        config = field(1, field(1, name)) + field(2, field(1, BUSYBOX)) + b"".join(field(3, word) for word in command)
        config += field(11, f"{name}.log") + field(15, field(1, field(3, 2)))
        request = field(1, sandbox[0]) + field(2, config) + field(3, sandbox[1])
        return first_text(self._call("CreateContainer", request))

    def start(self, container: str) -> None:
        """Start a container."""
        self._call("StartContainer", field(1, container))

    def remove(self, container: str) -> None:
        """Remove a container."""
        self._call("RemoveContainer", field(1, container))

    def output(self, name: str) -> list[str]:
        """Return the lines that a container has written."""
        path = self._logs / f"{name}.log"
        return [line.split(" ", 3)[3] for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """Remove every sandbox with its containers."""
        for sandbox in self._sandboxes:
            wait_for(lambda sandbox=sandbox: self._is_removed(sandbox), 20, interval_seconds=0.5)
        self._channel.close()

    def _is_removed(self, sandbox: str) -> bool:
        """A container that ends at this moment fails the call, as its shim is gone; a kubelet asks again, too."""
        try:
            self._call("StopPodSandbox", field(1, sandbox))
            self._call("RemovePodSandbox", field(1, sandbox))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNKNOWN:
                return False
            raise
        return True
