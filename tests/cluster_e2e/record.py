"""Record of what a test node has changed on this machine, on disk before it is changed.

One node fits a machine: the record is locked while its node runs. A record that nobody locks was left by a run that
was killed, and `clean` undoes it just as it undoes a run that ended well.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.cluster_e2e.processes import Started

RECORD = Path("/run/koord-test-node.json")


def guest_record(name: str) -> Path:
    """Return the record of the control plane of a node in a guest of this name; each guest has its own."""
    return Path(f"/run/koord-test-guest-{name}.json")


class Record(msgspec.Struct):
    """State of the machine before the node, and the programs that run for it."""

    directory: str
    """Everything of the node that is no kernel object lies here."""
    started: list[Started] = []
    sysctls: dict[str, str] = {}
    """Values to write back, by path below /proc/sys."""
    remove: list[str] = []
    """Directories that were not there before."""
    bridge: str = ""
    """Network link to delete."""
    cgroups: list[str] = []
    """Names of top cgroups to remove."""
    file: str = str(RECORD)
    """Path of this record."""

    @property
    def path(self) -> Path:
        """The node's directory."""
        return Path(self.directory)

    def save(self) -> None:
        """Write the record atomically."""
        draft = Path(self.file).with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(self))
        draft.rename(self.file)


class NodeRunningError(Exception):
    """Another run has its node on this machine."""


@contextmanager
def locked(file: Path = RECORD) -> Iterator[Record | None]:
    """Hold this machine's only place for a node; yields the record of a killed run. Raises NodeRunningError."""
    lock = os.open(file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise NodeRunningError(f"another run has a test node on this machine ({file})") from error
    try:
        yield msgspec.json.decode(file.read_bytes(), type=Record) if file.exists() else None
    finally:
        os.close(lock)
