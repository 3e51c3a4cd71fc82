"""Baselines on disk: loaded at start, saved every `save_seconds` and at the end, replaced atomically.

A file that fails its checks is kept under another name, with the reason in the log; learning starts anew.
"""

import contextlib
import errno
import logging
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from detector.baselines.file import decode, encode
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselinePolicy, ToldTime

_log = logging.getLogger(__name__)

_LARGEST_BYTES = 256 << 20
_LAST_WAIT_SECONDS = 10.0
_STALE_SECONDS = 3600.0
"""Age from which a temporary file is taken for one that a killed agent left."""


@dataclass(frozen=True, slots=True)
class LoadedBaselines:
    """Content of the file: baselines, or the reason of their refusal, or neither where there is no file."""

    baselines: Baselines | None = None
    saved_bytes: int = 0
    refused: str = ""


def read_baselines(path: Path, now_seconds: float, policy: BaselinePolicy) -> LoadedBaselines:
    """Read the file without changing anything on disk."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return LoadedBaselines(refused="not a regular file")
        if found.st_size > _LARGEST_BYTES:
            return LoadedBaselines(refused=f"{found.st_size} bytes are no baselines")
        return LoadedBaselines(decode(path.read_bytes(), now_seconds, policy), found.st_size)
    except FileNotFoundError:
        return LoadedBaselines()
    except (OSError, ValueError) as error:
        return LoadedBaselines(refused=str(error))


def refused_files(path: Path) -> list[Path]:
    """Files that were refused at this path, oldest first."""
    return sorted(path.parent.glob(f"{path.name}.refused-*"))


class BaselineStore:
    """The baseline file of a running agent. Failures end no tick: they are logged once in a row and counted."""

    def __init__(self, path: Path, save_seconds: float) -> None:
        self.path = Path(os.path.realpath(path))
        self.save_seconds = save_seconds
        self.refused = ""
        """Reason why the file found at the start was refused."""
        self.saves = 0
        self.failures = 0
        """Saves that did not succeed."""
        self._last_save = time.monotonic()
        self._is_failing = False
        self._may_save = True
        self._writing: threading.Thread | None = None

    def load(self, policy: BaselinePolicy) -> Baselines | None:
        """Return the saved baselines, aged to now; None where there are none or they were refused."""
        found = read_baselines(self.path, time.time(), policy)
        self._tidy()
        if found.refused:
            self.refused = found.refused
            self._put_aside()
        elif found.baselines is not None:
            _log.info("%d baselines loaded from %s", len(found.baselines), self.path)
        return found.baselines

    def save_if_due(self, baselines: Baselines, told_times: Callable[[], tuple[ToldTime, ...]] = tuple) -> None:
        """Save in a thread every `save_seconds`: a slow disk delays no tick. `told_times` is asked when it is time."""
        if time.monotonic() - self._last_save < self.save_seconds:
            return
        self._last_save = time.monotonic()
        if self._writing is not None and self._writing.is_alive():
            self._failed(f"the last save is not finished after {self.save_seconds:g} s")
        elif self._may_save:
            data = encode(baselines, time.time(), told_times())
            self._writing = threading.Thread(target=self._write, args=(data,), name="baselines", daemon=True)
            self._writing.start()

    def close(self, baselines: Baselines, told_times: Callable[[], tuple[ToldTime, ...]] = tuple) -> None:
        """Save for the last time; idempotent."""
        if self._writing is not None:
            self._writing.join(_LAST_WAIT_SECONDS)
        if self._writing is not None and self._writing.is_alive():
            self._failed("the disk does not answer")
        elif self._may_save:
            self._write(encode(baselines, time.time(), told_times()))
        self._may_save = False

    def _write(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(self.path, data)
        except OSError as error:
            self._failed(str(error))
            return
        self.saves += 1
        if self._is_failing:
            _log.info("baselines are saved to %s again", self.path)
        self._is_failing = False

    def _failed(self, why: str) -> None:
        self.failures += 1
        if not self._is_failing:
            _log.warning("baselines could not be saved: %s; learning goes on in memory", why)
        self._is_failing = True

    def _put_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.refused-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        try:
            if not self.path.is_file():
                raise OSError(errno.EINVAL, "not a file to rename")
            self.path.rename(aside)
        except OSError as error:
            self._may_save = False
            _log.warning("%s: %s; it stays (%s) and nothing is saved", self.path, self.refused, error.strerror)
            return
        _log.warning("%s: %s; kept as %s, learning anew", self.path, self.refused, aside.name)

    def _tidy(self) -> None:
        """Remove temporary files of agents that were killed while they wrote."""
        for stale in self.path.parent.glob(f".{self.path.name}.*.new"):
            with contextlib.suppress(OSError):
                if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                    stale.unlink()


def replace(path: Path, data: bytes) -> None:
    """Replace the file atomically: a crash at any time leaves the old content or the new one, whole."""
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
