"""Recordings: frames as the judge gets them, on disk, from which its verdicts are replayed and explained.

Each frame is one append to the page cache: a killed agent loses nothing, a power cut the last seconds. A failure is
counted and never the tick's.
"""

import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from api.frame import Frame
from api.stacks import StackEvidence
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.format import SUFFIX, Header, encode_header, encode_stacks
from detector.recording.frames import FrameEncoder
from koordlet.config import RecordingSettings

_log = logging.getLogger(__name__)

_UNFINISHED = f"{SUFFIX}.new"
"""Suffix of a segment whose header is not written yet; an agent killed meanwhile leaves one behind. Names its format:
others may keep files of theirs in a directory that an operator chose."""

RETRY_SECONDS = 10.0
"""Time after a failure during which frames are lost before the next attempt."""


@dataclass(slots=True)
class _Segment:
    path: Path
    descriptor: int
    encoder: FrameEncoder
    started_ns: int
    most_bytes: int
    judge_settings: JudgeSettings
    bytes: int = 0


class Recorder:
    """Writes each frame before the judge steps."""

    def __init__(self, settings: RecordingSettings, host: Mapping[str, str]) -> None:
        self._settings = settings
        self._host = dict(host)
        self._directory = Path(settings.directory)
        self._segment: _Segment | None = None
        self._run, self._number = "", 0
        self._retry_ns = 0
        self.frames = 0
        """Frames written."""
        self.bytes = 0
        """Bytes written, headers included."""
        self.lost_frames = 0
        """Frames that could not be written."""
        self.lost_stacks = 0
        """Measurements of stacks that could not be written."""
        self.stopped_because = ""
        """Reason why nothing is recorded now; empty while it is."""

    def record(self, frame: Frame, judge: Judge) -> None:
        """Append the frame, in a new segment where one is due; failures are counted and logged once in a row."""
        if self.stopped_because and frame.monotonic_ns < self._retry_ns:
            self.lost_frames += 1
            return
        try:
            self._write(frame, judge)
        except Exception as error:  # noqa: BLE001 - judging goes on without a recording; logged once and counted
            self._stop(frame, error)
            return
        if self.stopped_because:
            _log.info("recording again in %s; %d frames are lost in all", self._directory, self.lost_frames)
            self.stopped_because = ""

    def keep_stacks(self, evidence: StackEvidence) -> None:
        """Append stacks to the segment under way; they are dropped and counted where there is none or no room."""
        segment = self._segment
        if segment is None:
            self.lost_stacks += 1
            return
        try:
            block = encode_stacks(evidence)
            if segment.bytes + len(block) > segment.most_bytes:
                raise OSError("the segment is full")
            self._append(segment, block)
        except OSError as error:
            self.lost_stacks += 1
            _log.warning("stacks are not recorded: %s", error)

    def close(self) -> None:
        """Close the segment; idempotent."""
        if self._segment is not None:
            os.close(self._segment.descriptor)
            self._segment = None

    def _write(self, frame: Frame, judge: Judge) -> None:
        segment = self._segment
        block = b""
        if segment is not None and not self._is_over(segment, frame, judge):
            block = segment.encoder.encode(frame)
        if segment is not None and block and segment.bytes + len(block) <= segment.most_bytes:
            self._append(segment, block)
        else:
            self._start(frame, judge)
        self.frames += 1

    def _is_over(self, segment: _Segment, frame: Frame, judge: Judge) -> bool:
        """Return whether the segment is too old, or was begun under other rules than the judge's."""
        is_old = frame.monotonic_ns - segment.started_ns >= self._settings.segment_seconds * 1e9
        return is_old or judge.settings is not segment.judge_settings

    def _start(self, frame: Frame, judge: Judge) -> None:
        """Start a segment with its first frame; it gets its name when header and frame are written."""
        self.close()
        if not self._run:
            started = datetime.fromtimestamp(frame.wall_ns / 1e9, UTC)
            self._run, self._number = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}", 0
        head = Header(
            run=self._run,
            number=self._number,
            settings=judge.settings,
            host=self._host,
            checkpoint=judge.checkpoint(),
        )
        encoder = FrameEncoder()
        header, first = encode_header(head), encoder.encode(frame)
        quarter = self._settings.max_bytes // 4
        if len(header) > 2 * quarter or len(first) > quarter:
            sizes = f"the judge's state takes {len(header)} bytes, a whole frame {len(first)}"
            raise ValueError(f"{sizes}; raise [recording] max_bytes")
        most_bytes = len(header) + max(min(self._settings.segment_bytes, quarter), len(first))
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(most_bytes)
        path = self._directory / f"{self._run}-{self._number:06d}{SUFFIX}"
        fresh = path.with_suffix(_UNFINISHED)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._segment = _Segment(path, descriptor, encoder, frame.monotonic_ns, most_bytes, judge.settings)
        self._append(self._segment, header + first)
        fresh.rename(path)
        self._number += 1

    def _append(self, segment: _Segment, data: bytes) -> None:
        """Append all of the data or none, so that a segment of a living agent never ends in a torn block."""
        written = os.write(segment.descriptor, data)
        if written < len(data):
            os.ftruncate(segment.descriptor, segment.bytes)
            raise OSError(f"only {written} of {len(data)} bytes found room")
        segment.bytes += written
        self.bytes += written

    def _make_room(self, needed_bytes: int) -> None:
        """Delete the oldest segments, whole, until `needed_bytes` more are within `max_bytes`."""
        for unfinished in self._directory.glob(f"*{_UNFINISHED}"):
            unfinished.unlink(missing_ok=True)
        sizes = {path: path.stat().st_size for path in self._directory.glob(f"*{SUFFIX}")}
        over = sum(sizes.values()) + needed_bytes - self._settings.max_bytes
        for path in sorted(sizes):
            if over <= 0:
                return
            path.unlink(missing_ok=True)
            over -= sizes[path]

    def _stop(self, frame: Frame, error: Exception) -> None:
        """Count the frame as lost and end the run: later frames do not continue what was written."""
        self.lost_frames += 1
        if not self.stopped_because:
            _log.warning("recording stopped: %s: %s; trying again every %g s", self._directory, error, RETRY_SECONDS)
        self.stopped_because = str(error)
        self._retry_ns = frame.monotonic_ns + int(RETRY_SECONDS * 1e9)
        self._run = ""
        if self._segment is not None and not self._segment.bytes:
            self._segment.path.with_suffix(_UNFINISHED).unlink(missing_ok=True)
        self.close()
