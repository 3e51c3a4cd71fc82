"""Checkpoint: a judge's arrays and frames as versioned values, without losing a bit."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo, Frame, Table

SCHEMA = "koord.judge/v1"


class CheckpointRefused(ValueError):
    """The bytes are no checkpoint that this version can resume from; the message is the reason."""


class Array(msgspec.Struct, frozen=True, array_like=True):
    """One array: its dtype as numpy spells it, its shape, its bytes in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def pack(array: NDArray[Any]) -> Array:
    """The array as a value."""
    return Array(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())


def unpack(packed: Array) -> NDArray[Any]:
    """A fresh, writable array. Raises CheckpointRefused where bytes and shape do not go together."""
    try:
        return np.frombuffer(bytearray(packed.data), dtype=np.dtype(packed.dtype)).reshape(packed.shape)
    except (ValueError, TypeError) as error:
        raise CheckpointRefused(f"an array is damaged: {error}") from error


class PackedTable(msgspec.Struct, frozen=True, array_like=True):
    """A `Table`."""

    keys: dict[str, Array]
    columns: dict[str, Array]


class PackedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A `Frame` without sources and losses, which decide nothing."""

    monotonic_ns: int
    wall_ns: int
    cgroups: tuple[CgroupInfo, ...]
    tables: dict[str, PackedTable]


def pack_frame(frame: Frame) -> PackedFrame:
    """The frame as a value."""
    tables = {
        name: PackedTable(
            {key: pack(column) for key, column in table.keys.items()},
            {key: pack(column) for key, column in table.columns.items()},
        )
        for name, table in frame.tables.items()
    }
    return PackedFrame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, tables)


def unpack_frame(packed: PackedFrame) -> Frame:
    """The frame that was packed."""
    tables = {
        name: Table(
            {key: unpack(column) for key, column in table.keys.items()},
            {key: unpack(column) for key, column in table.columns.items()},
        )
        for name, table in packed.tables.items()
    }
    return Frame(packed.monotonic_ns, packed.wall_ns, packed.cgroups, tables)
