"""Writer of profiles: gathers rows in the tick, writes in a thread and a child process, deletes the oldest files."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from api.frame import CgroupInfo
from api.kube.times import rfc3339
from api.verdicts import Verdict
from api.window import Window
from koordlet.profiles.harm import HarmRows
from koordlet.profiles.rows import AmountsOf, ProfileSegment, Rows, no_amounts
from koordlet.profiles.segment import PARTIAL
from koordlet.profiles.settings import ProfileSettings

_log = logging.getLogger(__name__)

SUFFIX = ".parquet"
HARM_FOLDER = "verdicts"
"""Folder below that of the profiles, with the rows of harm."""
_HARM_PART = 8
"""Part of the bytes that the files of harm may have."""
_WRITE_SECONDS = 120.0


class _Gathered(Protocol):
    """Rows that become a segment."""

    def __len__(self) -> int: ...

    def take(self) -> ProfileSegment: ...


class _Files:
    """Files of one kind in one directory, written by one thread and child process at a time."""

    def __init__(self, directory: Path, prefix: str, max_bytes: int, lose: Callable[[int], None]) -> None:
        self.written = 0
        self._directory = directory
        self._prefix = prefix
        self._max_bytes = max_bytes
        self._lose_rows = lose
        self._thread: threading.Thread | None = None
        self._sequence = 0
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left_over in directory.glob(f"*{SUFFIX}{PARTIAL}"):
            left_over.unlink(missing_ok=True)

    def write(self, rows: _Gathered, wall_seconds: float) -> None:
        """Take the rows and begin to write them."""
        if not len(rows):
            return
        segment = rows.take()
        if self._thread is not None and self._thread.is_alive():
            self._lose(segment, "the one before is still being written")
            return
        self._sequence += 1
        stamp = rfc3339(wall_seconds).replace(":", "")
        path = self._directory / f"{self._prefix}-{stamp}-{self._sequence:06d}{SUFFIX}"
        self._thread = threading.Thread(target=self._write, args=(segment, path), name="profiles", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for what is being written."""
        if self._thread is not None:
            self._thread.join(_WRITE_SECONDS)

    def _write(self, segment: ProfileSegment, path: Path) -> None:
        command = [sys.executable, "-P", "-m", "koordlet.profiles.segment", str(path)]
        try:
            done = subprocess.run(
                command, input=msgspec.msgpack.encode(segment), capture_output=True, timeout=_WRITE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._lose(segment, str(error))
            return
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            self._lose(segment, words[-1] if words else f"exit status {done.returncode}")
            return
        self.written += 1
        for old in surplus(self._directory, self._max_bytes):
            old.unlink(missing_ok=True)

    def _lose(self, segment: ProfileSegment, reason: str) -> None:
        self._lose_rows(len(segment))
        _log.warning("a profile of %d rows was not written to %s: %s", len(segment), self._directory, reason)


class ProfileWriter:
    """Profile writer: `after_tick` after each tick never waits; `close` writes what was gathered."""

    def __init__(
        self, settings: ProfileSettings, node_type: str, span_seconds: float, amounts_of: AmountsOf = no_amounts
    ) -> None:
        """Make the directories. Raises OSError naming one."""
        self.lost_rows = 0
        """Rows of segments that could not be written."""
        self._settings = settings
        directory = Path(settings.directory)
        self._files = _Files(directory, "profile", settings.max_bytes, self._lose)
        harm_bytes = settings.max_bytes // _HARM_PART
        self._harm_files = _Files(directory / HARM_FOLDER, "verdicts", harm_bytes, self._lose)
        self._rows = Rows(node_type, span_seconds, amounts_of)
        self._harm = HarmRows()
        self._sampled_seconds = float("-inf")
        self._begun_seconds: float | None = None
        self._wall_seconds = 0.0

    @property
    def written(self) -> int:
        """Files of profiles that were written."""
        return self._files.written

    def is_due(self, window: Window) -> bool:
        """Return whether a window's newest tick has rows."""
        elapsed = window.last.monotonic_ns / 1e9 - self._sampled_seconds
        return elapsed >= self._settings.every_seconds and window.seconds > 0

    def after_tick(
        self, window: Window, verdicts: Iterable[Verdict], oom_kills: Sequence[tuple[CgroupInfo, int]] = ()
    ) -> None:
        """Gather rows when it is time; `verdicts` are those in effect, `oom_kills` those since the rows before."""
        if not self.is_due(window):
            return
        now_seconds = window.last.monotonic_ns / 1e9
        self._wall_seconds = window.last.wall_ns / 1e9
        every = self._settings.every_seconds
        elapsed = now_seconds - self._sampled_seconds
        elapsed = every if elapsed == float("inf") else min(elapsed, 2 * every)  # a pause was not measured
        self._sampled_seconds = now_seconds
        verdicts = tuple(verdicts)
        self._rows.add(window, [verdict.victim for verdict in verdicts], oom_kills)
        self._harm.add(verdicts, self._wall_seconds, elapsed)
        if self._begun_seconds is None:
            self._begun_seconds = now_seconds
        old = now_seconds - self._begun_seconds >= self._settings.segment_seconds
        if old or max(len(self._rows), len(self._harm)) >= self._settings.segment_rows:
            self._hand_over()

    def close(self) -> None:
        """Write what is left and wait for it; idempotent."""
        self._join()
        self._hand_over()
        self._join()

    def _join(self) -> None:
        self._files.join()
        self._harm_files.join()

    def _hand_over(self) -> None:
        self._begun_seconds = None
        self._files.write(self._rows, self._wall_seconds)
        self._harm_files.write(self._harm, self._wall_seconds)

    def _lose(self, rows: int) -> None:
        self.lost_rows += rows


def surplus(directory: Path, max_bytes: int) -> list[Path]:
    """Return the oldest files beyond the size limit, by name, which begins with the time."""
    kept, over = 0, []
    for path in sorted(directory.glob(f"*{SUFFIX}"), reverse=True):
        kept += path.stat().st_size
        if kept > max_bytes:
            over.append(path)
    return over
