"""Recordings on disk: their segments and frames. Only reads; data that cannot be trusted ends a segment."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from api.frame import Frame
from api.stacks import StackEvidence
from detector.recording.format import (
    FRAME,
    HEADER,
    MAGIC,
    PREFIX_BYTES,
    STACKS,
    SUFFIX,
    Header,
    RecordingRefused,
    decode_header,
    decode_stacks,
    prefix_of,
    unpack_block,
)
from detector.recording.frames import FrameDecoder


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage at which the reading of a segment ended."""

    offset: int
    reason: str
    lost_bytes: int
    """From there to the end of the file."""


class RecordedSegment:
    """One file, opened: `header`, then each call of `frames` reads on from the first frame.

    Raises RecordingRefused where there is no header this version reads, OSError where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: Damage | None = None
        """Set by `frames` where it ended before the end of the file."""
        with path.open("rb") as stream:
            self.bytes = os.fstat(stream.fileno()).st_size
            self.header = self._read_header(stream)
            self._first = stream.tell()

    def frames(self) -> Iterator[Frame]:
        """All whole frames in order; a torn or damaged rest is dropped and described in `damage`."""
        for _offset, frame in self.placed_frames():
            yield frame

    def stacks(self) -> Iterator[StackEvidence]:
        """All stacks in order, without decoding frames; a damaged rest is dropped, as by `frames`."""
        with self.path.open("rb") as stream:
            offset = stream.seek(self._first)
            while offset < self.bytes:
                try:
                    kind, payload, checksum = _read_packed(stream, self.bytes - offset)
                    if kind == STACKS:
                        yield decode_stacks(unpack_block(kind, payload, checksum))
                except (ValueError, MemoryError):
                    return
                offset = stream.tell()

    def placed_frames(self) -> Iterator[tuple[int, Frame]]:
        """Every frame with the offset of the byte after it."""
        decoder = FrameDecoder()
        self.damage = None
        with self.path.open("rb") as stream:
            offset = stream.seek(self._first)
            while offset < self.bytes:
                try:
                    kind, body = _read_block(stream, self.bytes - offset)
                    if kind == HEADER:
                        raise ValueError("a header inside a segment")
                    frame = decoder.decode(body) if kind == FRAME else None
                except (ValueError, MemoryError) as error:
                    self.damage = Damage(offset, str(error) or "out of memory", self.bytes - offset)
                    return
                offset = stream.tell()
                if frame is not None:
                    yield offset, frame

    def _read_header(self, stream: BinaryIO) -> Header:
        if stream.read(len(MAGIC)) != MAGIC:
            raise RecordingRefused(str(self.path), 0, f"not a recording: it does not start with {MAGIC.decode()}")
        offset = stream.tell()
        try:
            kind, body = _read_block(stream, self.bytes - offset)
            if kind != HEADER:
                raise ValueError("a segment must start with its header")
            return decode_header(body)
        except (ValueError, MemoryError) as error:
            raise RecordingRefused(str(self.path), offset, str(error) or "out of memory") from error


def segment_paths(path: Path) -> list[Path]:
    """The file itself, or the segments of a directory in the order they were written.

    Raises RecordingRefused where a directory holds none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX and each.is_file())
    if not found:
        raise RecordingRefused(str(path), 0, f"the directory holds no {SUFFIX} file")
    return found


def segments(paths: Sequence[Path], report: Callable[[str], None]) -> Iterator[RecordedSegment]:
    """The files opened in order; of several, those that are gone or unusable are passed to `report` and left out.

    Raises RecordingRefused where none is left, OSError where a file cannot be read.
    """
    refused: RecordingRefused | None = None
    is_any_usable = False
    for path in paths:
        try:
            segment = RecordedSegment(path)
        except RecordingRefused as error:
            if len(paths) > 1:
                report(f"{error}; the file is left out")
            refused = error
            continue
        except FileNotFoundError:
            if len(paths) == 1:
                raise
            report(f"{path}: deleted meanwhile; it is left out")
            continue
        is_any_usable = True
        yield segment
    if refused is not None and not is_any_usable:
        raise refused


def _read_block(stream: BinaryIO, remaining: int) -> tuple[bytes, bytes]:
    kind, payload, checksum = _read_packed(stream, remaining)
    return kind, unpack_block(kind, payload, checksum)


def _read_packed(stream: BinaryIO, remaining: int) -> tuple[bytes, bytes, int]:
    if remaining < PREFIX_BYTES:
        raise ValueError(f"torn: {remaining} bytes are no block")
    kind, length, checksum = prefix_of(stream.read(PREFIX_BYTES))
    if length > remaining - PREFIX_BYTES:
        raise ValueError(f"torn: a block of {length} bytes has {remaining - PREFIX_BYTES} left")
    return kind, stream.read(length), checksum
