"""The journal on disk: the original of every attribute that is changed, so that the next run can restore it.

A record is in the file before the change it announces. It is not forced to the disk, which would cost the fast path
tens of milliseconds: it must survive the agent, not the kernel, for the changes end with the kernel too and a journal
of another boot is never restored. The file is replaced as a whole (written beside, synced, renamed) when it has
grown beyond `COMPACT_BYTES` and twice what is live, so that it is whole at any moment. One agent at a time holds it,
by a lock on the file `lock` beside it, which the kernel lets go when the agent dies.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from koordlet.enforcer.journal_format import (
    SCHEMA,
    Begin,
    Decoded,
    Drop,
    Handover,
    Hold,
    JournalEntry,
    Record,
    decode,
    encode,
)

COMPACT_BYTES = 1 << 18
MOST_DAMAGED = 4
"""Damaged journals that are kept, the newest."""
_LOCK_POLL_SECONDS = 0.05
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NOT_WRITTEN = "the journal cannot be written; nothing changed"


class JournalError(Exception):
    """The state directory cannot be used; the message says why and what to do."""


class JournalHeld(JournalError):
    """Another agent, or the guardian of one, holds the state directory."""


class Journal:
    """`live` holds the attributes that would be restored, `failures` counts batches that could not be written."""

    def __init__(
        self,
        directory: Path,
        boot: str,
        *,
        write: Callable[[int, bytes], None] | None = None,
        compact_bytes: int = COMPACT_BYTES,
        wait_seconds: float = 0.0,
    ) -> None:
        """Take over the state directory. Raises JournalError where another agent has it or it cannot be written.

        `wait_seconds` is how long to wait for another one to let it go: a guardian holds it while it restores.

        `live` holds the entries that the last run left, `found` the state of its file. A damaged file is linked to
        `damaged_copy`, a name with the time. `write` puts all bytes into a descriptor, `compact_bytes` is the size
        beyond which the file is replaced.
        """
        self._write = write or _write_all
        self._compact_bytes = compact_bytes
        self._directory = directory
        self.path = directory / "journal"
        self._boot = boot
        self._fd = -1
        self._size = 0
        self._most_bytes = compact_bytes
        self._number = 0
        self._unrecorded: set[str] = set()
        self.failures = 0
        self.damaged_copy: Path | None = None
        self._lock = lock_state(directory, wait_seconds)
        try:
            self.found = self._read()
            self.live: dict[str, JournalEntry] = dict(self.found.live) if self.found.boot in ("", boot) else {}
            self.is_of_another_boot = self.found.boot not in ("", boot)
            self.handover_until = None if self.is_of_another_boot else self.found.handover_until
            if self.found.damage:
                self.damaged_copy = self.path.with_name(f"journal.damaged-{time.time_ns() // 1_000_000}")
                os.link(self.path, self.damaged_copy)
                self._tidy()
            self._try_replace()
        except OSError as error:
            os.close(self._lock)
            raise JournalError(f"{self.path}: {error.strerror}; see [enforcer] state_dir") from error

    def _read(self) -> Decoded:
        try:
            return decode(self.path.read_bytes())
        except FileNotFoundError:
            return Decoded()

    def _tidy(self) -> None:
        """Keep the newest damaged journals only: a disk that damages each would be filled with them."""
        copies = sorted(self.path.parent.glob("journal.damaged-*"), key=lambda one: (len(one.name), one.name))
        for old in copies[:-MOST_DAMAGED]:
            old.unlink(missing_ok=True)

    def _try_replace(self) -> None:
        try:
            self._replace()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Nothing is lost by a journal that stays as it is: it cannot be added to until it fits again.
            self.failures += 1

    def hold(self, entries: Iterable[JournalEntry]) -> bool:
        """Record that these attributes are about to be changed; return False where that failed: then change nothing."""
        new = list(entries)
        if not new:
            return True
        if not self._append([Hold(entry) for entry in new]):
            return False
        self.live.update((entry.attribute.key, entry) for entry in new)
        return True

    def drop(self, keys: Iterable[str]) -> None:
        """Record that these attributes are restored; where that fails it is made up for by a later call."""
        self._unrecorded.update(key for key in keys if self.live.pop(key, None) is not None)
        if self._unrecorded and self._append([Drop(key) for key in sorted(self._unrecorded)]):
            self._unrecorded.clear()

    def hand_over(self, until_seconds: float) -> bool:
        """Record that the next agent may take the actions over; return False where that failed: then restore them."""
        return self._append([Handover(until_seconds)])

    def _append(self, records: list[Record]) -> bool:
        if self._fd < 0 or self._size > self._most_bytes or self._is_replaced():
            try:
                self._replace()
            except OSError:
                self.failures += 1
                return False
        content = encode(records, self._number)
        try:
            self._write(self._fd, content)
        except OSError:
            self.failures += 1
            self._truncate()
            return False
        self._size += len(content)
        self._number += len(records)
        return True

    def _is_replaced(self) -> bool:
        """Return whether another program removed or replaced the file."""
        return os.fstat(self._fd).st_nlink == 0

    def _truncate(self) -> None:
        """Take a half-written batch away; if even that fails, write the next one to a new file."""
        try:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except OSError:
            os.close(self._fd)
            self._fd = -1

    def _replace(self) -> None:
        """Write all live entries to a new file and rename it over the old one."""
        records: list[Record] = [Begin(SCHEMA, self._boot), *map(Hold, self.live.values())]
        content = encode(records, 0)
        beside = self.path.with_name("journal.new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._write(fd, content)
            os.fsync(fd)
            beside.rename(self.path)
            _sync_directory(self._directory)
        except OSError:
            os.close(fd)
            beside.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._number = fd, len(content), len(records)
        # Of more live entries than `compact_bytes` each change would replace the file, and sync it.
        self._most_bytes = max(self._compact_bytes, 2 * len(content))
        self._unrecorded.clear()

    def close(self) -> None:
        """Release the lock; live entries stay on the disk. Idempotent."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1


def lock_state(directory: Path, wait_seconds: float) -> int:
    """Return a descriptor that holds the lock of a state directory. Raises JournalError where another one does."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
            raise JournalError(
                f"{directory}: others than root may write it, and so what the agent restores; "
                "chown it to root and chmod it to 755, or set [enforcer] state_dir to another place"
            )
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise JournalError(f"{directory}: {error.strerror}; set [enforcer] state_dir to a writable place") from error
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(_LOCK_POLL_SECONDS)
                continue
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise JournalError(f"{directory}/lock: {error.strerror}; see [enforcer] state_dir") from error
            raise JournalHeld(f"{directory} is held by an agent that runs; stop it first") from error
        return fd


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class NoJournal:
    """A journal in memory, for dry runs."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self.live = {entry.attribute.key: entry for entry in entries}
        self.failures = 0

    def hand_over(self, until_seconds: float) -> bool:  # noqa: ARG002
        """As `Journal.hand_over`; there is nothing to hand over."""
        return False

    def hold(self, entries: Iterable[JournalEntry]) -> bool:
        """As `Journal.hold`."""
        self.live.update((entry.attribute.key, entry) for entry in entries)
        return True

    def drop(self, keys: Iterable[str]) -> None:
        """As `Journal.drop`."""
        for key in keys:
            self.live.pop(key, None)

    def close(self) -> None:
        """Do nothing."""


def peek(directory: Path, boot: str) -> dict[str, JournalEntry]:
    """Entries that a journal would restore, without taking it over; empty where there is none.

    Raises OSError where there is one that cannot be read.
    """
    try:
        found = decode((directory / "journal").read_bytes())
    except FileNotFoundError:
        return {}
    return dict(found.live) if found.boot == boot else {}
