"""Checkpoint of usage: every array bit for bit, with a checksum, in one file that is replaced as a whole."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from controllers.recommend.usage import Usage

SCHEMA = "koord.usage/v1"
PARTIAL = ".new"
"""Suffix of an incomplete file."""
_ARRAYS = (
    "first_cpu_seconds",
    "last_cpu_seconds",
    "cpu_samples",
    "aggregate_of",
    "stream_cpu_seconds",
    "stream_memory_seconds",
    "interval_end_seconds",
    "used_peak_bytes",
    "oom_peak_bytes",
)


class CheckpointError(Exception):
    """A checkpoint cannot be read; the message names the file and the reason."""


class _Checkpoint(msgspec.Struct, frozen=True):
    schema: str
    aggregates: list[str]
    streams: list[str]
    cpu_reference_seconds: float | None
    memory_reference_seconds: float | None
    cpu: bytes
    memory: bytes
    arrays: dict[str, bytes]


def encode(usage: Usage, aggregates: Sequence[str], streams: Sequence[str]) -> bytes:
    """Return a checkpoint; the names are those of the aggregates and streams, in order of their rows."""
    content = msgspec.msgpack.encode(
        _Checkpoint(
            SCHEMA,
            list(aggregates),
            list(streams),
            usage.cpu.reference_seconds,
            usage.memory.reference_seconds,
            zlib.compress(usage.cpu.weights.astype("<f8").tobytes(), 1),
            zlib.compress(usage.memory.weights.astype("<f8").tobytes(), 1),
            {name: getattr(usage, name).astype("<i8" if _is_whole(name) else "<f8").tobytes() for name in _ARRAYS},
        )
    )
    return zlib.crc32(content).to_bytes(4, "little") + content


def decode(data: bytes) -> tuple[Usage, list[str], list[str]]:
    """Return what `encode` was given. Raises CheckpointError for anything else."""
    if len(data) < 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise CheckpointError("the checksum does not match")
    try:
        stored = msgspec.msgpack.decode(data[4:], type=_Checkpoint)
        if stored.schema != SCHEMA:
            raise CheckpointError(f"schema {stored.schema[:40]!r}, not {SCHEMA}")
        usage = Usage()
        usage.cpu.reference_seconds = stored.cpu_reference_seconds
        usage.memory.reference_seconds = stored.memory_reference_seconds
        for histograms, packed in ((usage.cpu, stored.cpu), (usage.memory, stored.memory)):
            weights = np.frombuffer(zlib.decompress(packed), "<f8").reshape(-1, histograms.buckets.count)
            histograms.weights = weights.copy()
        for name in _ARRAYS:
            setattr(usage, name, np.frombuffer(stored.arrays[name], "<i8" if _is_whole(name) else "<f8").copy())
    except (msgspec.DecodeError, KeyError, ValueError, RecursionError, zlib.error) as error:
        raise CheckpointError(str(error)) from error
    rows = (len(usage.cpu.weights), len(usage.memory.weights), len(usage.cpu_samples), len(stored.aggregates))
    streams = {len(getattr(usage, name)) for name in _ARRAYS[3:]} | {len(stored.streams)}
    if len(set(rows)) > 1 or len(streams) > 1 or np.any((usage.aggregate_of < 0) | (usage.aggregate_of >= rows[0])):
        raise CheckpointError("the arrays do not fit each other")
    return usage, stored.aggregates, stored.streams


def save(path: Path, usage: Usage, aggregates: Sequence[str], streams: Sequence[str]) -> None:
    """Replace the file at a path. Raises OSError; the file that was there stays then."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            file.write(encode(usage, aggregates, streams))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load(path: Path) -> tuple[Usage, list[str], list[str]]:
    """Return usage and the names of aggregates and streams. Raises OSError, and CheckpointError naming the file."""
    try:
        return decode(path.read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}; remove it to begin anew") from error


def _is_whole(name: str) -> bool:
    return name in ("cpu_samples", "aggregate_of")
