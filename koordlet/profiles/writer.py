"""Writer of profiles: gathers rows in the tick, writes in a thread and a child process, deletes the oldest files."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from api.kube.times import rfc3339
from api.window import Window
from koordlet.profiles.rows import ProfileSegment, Rows
from koordlet.profiles.segment import PARTIAL
from koordlet.profiles.settings import ProfileSettings

_log = logging.getLogger(__name__)

SUFFIX = ".parquet"
_WRITE_SECONDS = 120.0


class ProfileWriter:
    """Profile writer: `after_tick` after each tick never waits; `close` writes what was gathered."""

    def __init__(self, settings: ProfileSettings, node_type: str, span_seconds: float) -> None:
        """Make the directory. Raises OSError naming it."""
        self.written = 0
        """Files that were written."""
        self.lost_rows = 0
        """Rows of segments that could not be written."""
        self._settings = settings
        self._directory = Path(settings.directory)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left_over in self._directory.glob(f"*{SUFFIX}{PARTIAL}"):
            left_over.unlink(missing_ok=True)
        self._rows = Rows(node_type, span_seconds)
        self._sampled_seconds = float("-inf")
        self._begun_seconds: float | None = None
        self._thread: threading.Thread | None = None
        self._sequence = 0

    def after_tick(self, window: Window, victims: Iterable[str]) -> None:
        """Gather rows when it is time; `victims` are the paths with an open verdict."""
        now_seconds = window.last.monotonic_ns / 1e9
        if now_seconds - self._sampled_seconds < self._settings.every_seconds or window.seconds <= 0:
            return
        self._sampled_seconds = now_seconds
        self._rows.add(window, victims)
        if self._begun_seconds is None:
            self._begun_seconds = now_seconds
        old = now_seconds - self._begun_seconds >= self._settings.segment_seconds
        if old or len(self._rows) >= self._settings.segment_rows:
            self._begun_seconds = None
            self._hand_over(window.last.wall_ns / 1e9)

    def close(self) -> None:
        """Write what is left and wait for it; idempotent."""
        self._join()
        if len(self._rows):
            self._hand_over(None)
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(_WRITE_SECONDS)

    def _hand_over(self, wall_seconds: float | None) -> None:
        segment = self._rows.take()
        if not len(segment):
            return
        if self._thread is not None and self._thread.is_alive():
            self._lose(segment, "the one before is still being written")
            return
        self._sequence += 1
        stamp = rfc3339(wall_seconds if wall_seconds is not None else float(segment.column("time")[-1]))
        path = self._directory / f"profile-{stamp.replace(':', '')}-{self._sequence:06d}{SUFFIX}"
        self._thread = threading.Thread(target=self._write, args=(segment, path), name="profiles", daemon=True)
        self._thread.start()

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
        for old in surplus(self._directory, self._settings.max_bytes):
            old.unlink(missing_ok=True)

    def _lose(self, segment: ProfileSegment, reason: str) -> None:
        self.lost_rows += len(segment)
        _log.warning("a profile of %d rows was not written to %s: %s", len(segment), self._directory, reason)


def surplus(directory: Path, max_bytes: int) -> list[Path]:
    """Return the oldest files beyond the size limit, by name, which begins with the time."""
    kept, over = 0, []
    for path in sorted(directory.glob(f"*{SUFFIX}"), reverse=True):
        kept += path.stat().st_size
        if kept > max_bytes:
            over.append(path)
    return over
