"""The last good spec of this node's NodeSLO on disk: what an agent follows that starts while the API server is away."""

import contextlib
import logging
import os
import stat
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

_log = logging.getLogger(__name__)

FILE = "node-slo.json"
_LARGEST_BYTES = 4 << 20


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    generation: int
    spec: dict[str, Any]


class KeptSpec:
    """The file of one node in the agent's state directory; a lost disk costs the file, never a tick."""

    def __init__(self, directory: Path, node: str) -> None:
        self.path = directory / FILE
        self._node = node
        self._writing: threading.Thread | None = None
        self._newest: tuple[Mapping[str, Any] | None, int] = (None, 0)
        self._is_waiting = False
        """Whether a thread will write what is newest when its turn comes."""
        self._lock = threading.Lock()
        self._is_failing = False

    def load(self) -> Mapping[str, Any] | None:
        """Return the spec; None without a file, and for one that is torn, of another node, or that others may write."""
        try:
            body = self._read()
            if body is None:
                return None
            checksum, _, text = body.partition(b"\n")
            if int(checksum, 16) != zlib.crc32(text):
                raise ValueError("it is torn")
            found = msgspec.json.decode(text, type=_Document)
            if found.node != self._node:
                raise ValueError(f"it is of node {found.node!r}")
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            _log.warning("%s is not followed: %s", self.path, error)
            return None
        return found.spec

    def _read(self) -> bytes | None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("it is no regular file")
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
                raise ValueError("others than the agent may write it; remove it")
            if found.st_size > _LARGEST_BYTES:
                raise ValueError(f"it has {found.st_size} bytes")
            return os.read(fd, _LARGEST_BYTES)
        finally:
            os.close(fd)

    def keep(self, spec: Mapping[str, Any] | None, generation: int = 0) -> None:
        """Replace the file, or remove it for None, in a thread: the disk may hang.

        The file is that of the newest call in the end; one whose turn did not come before the next is passed over.
        """
        self._newest = (spec, generation)
        if not self._is_waiting:
            self._is_waiting = True
            self._writing = threading.Thread(target=self._write, name="kept-spec", daemon=True)
            self._writing.start()

    def wait(self, timeout_seconds: float) -> None:
        """Wait for the last write."""
        if self._writing is not None:
            self._writing.join(timeout_seconds)

    def _write(self) -> None:
        with self._lock:
            self._is_waiting = False
            spec, generation = self._newest
            try:
                if spec is None:
                    self.path.unlink(missing_ok=True)
                else:
                    text = msgspec.json.encode(_Document(node=self._node, generation=generation, spec=dict(spec)))
                    self._replace(b"%08x\n" % zlib.crc32(text) + text)
                self._is_failing = False
            except (OSError, TypeError) as error:
                if not self._is_failing:
                    _log.warning("the NodeSLO is not kept for a start without API server: %s", error)
                self._is_failing = True

    def _replace(self, content: bytes) -> None:
        beside = self.path.with_name(f"{FILE}.new")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as stream:
                stream.write(content)
            beside.rename(self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
