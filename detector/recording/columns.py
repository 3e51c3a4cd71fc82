"""Tables as differences from the same table one tick before: bytes that mostly are zeros, and back, exactly.

Every value is taken by its bits, so values are restored exactly: NaN, counters that run backwards, full 64 bits.
Rows are matched by their keys, columns by name and type; new ones differ from zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import Column, Table

Bits = NDArray[np.uint64]
Named = list[tuple[str, str]]
"""Names and types (`u8`: kind and bytes) of keys or columns."""

MAX_ROWS = 1 << 20
MAX_VALUES = 1 << 24
_TYPES = frozenset(("b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"))
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


class TableDiff(msgspec.Struct, array_like=True, frozen=True):
    """Difference of a table from the one before; None means unchanged."""

    rows: bytes | None
    """Row of each row in the table before, as differences from `previous + 1` (int32); -1 is a new row."""
    new_keys: bytes
    """Keys of the new rows, key by key (uint64)."""
    keys: Named | None
    columns: Named | None
    changed: bytes
    """A bit for each value, column by column."""
    amounts: bytes
    """Zigzag differences of the changed values, byte plane by byte plane."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table by its bits; shapes (keys, rows) and (columns, rows)."""

    keys: Named = field(default_factory=list)
    columns: Named = field(default_factory=list)
    key_bits: Bits = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint64))
    value_bits: Bits = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint64))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int((self.key_bits if self.keys else self.value_bits).shape[1])

    def table(self) -> Table:
        """As frames carry it."""
        return Table(_restore(self.keys, self.key_bits), _restore(self.columns, self.value_bits))


def is_recordable(column: Column) -> bool:
    """Return whether it is a plain column of numbers."""
    return column.ndim == 1 and _type_of(column) in _TYPES


def state_of(table: Table, wanted: frozenset[str]) -> TableState:
    """The keys and those wanted columns that are plain numbers. Raises ValueError for keys that are none."""
    if not all(is_recordable(column) for column in table.keys.values()):
        raise ValueError("keys must be plain numbers")
    plain = {name: column for name, column in table.columns.items() if name in wanted and is_recordable(column)}
    rows = len(table)
    return TableState(_named(table.keys), _named(plain), _stack(table.keys, rows), _stack(plain, rows))


def differ(later: TableState, earlier: TableState) -> TableDiff:
    """Return the difference from `earlier` to `later`."""
    same_keys = later.keys == earlier.keys
    same_rows = same_keys and np.array_equal(later.key_bits, earlier.key_bits) and later.rows == earlier.rows
    rows = np.arange(later.rows) if same_rows else _find_rows(later, earlier)
    unlike = later.value_bits - _base(later.columns, rows, earlier)
    zigzag = (unlike << np.uint64(1)) ^ (unlike.view(np.int64) >> np.int64(63)).view(np.uint64)
    changed = zigzag != 0
    amounts = zigzag[changed]
    return TableDiff(
        None if same_rows else _steps(rows).tobytes(),
        later.key_bits[:, rows < 0].tobytes(),
        None if same_keys else later.keys,
        None if later.columns == earlier.columns else later.columns,
        np.packbits(changed).tobytes(),
        amounts.astype("<u8").view(np.uint8).reshape(-1, 8).T.tobytes(),
    )


def apply(diff: TableDiff, earlier: TableState) -> TableState:
    """The table after `earlier`. Raises ValueError where the difference does not fit it."""
    keys = earlier.keys if diff.keys is None else _checked(diff.keys)
    columns = earlier.columns if diff.columns is None else _checked(diff.columns)
    rows = np.arange(earlier.rows) if diff.rows is None else _walked(diff.rows, earlier.rows)
    if len(rows) > MAX_ROWS or len(rows) * len(columns) > MAX_VALUES:
        raise ValueError(f"a table of {len(rows)} rows and {len(columns)} columns is beyond all measure")
    key_bits = _keys_after(diff, keys, rows, earlier)
    return TableState(
        keys, columns, key_bits, _base(columns, rows, earlier) + _differences(diff, len(columns), len(rows))
    )


def _differences(diff: TableDiff, columns: int, rows: int) -> Bits:
    count = columns * rows
    if len(diff.changed) != (count + 7) // 8:
        raise ValueError(f"{len(diff.changed)} bytes of change bits do not fit {columns} columns of {rows} rows")
    changed = np.unpackbits(np.frombuffer(diff.changed, dtype=np.uint8), count=count).astype(np.bool_)
    if len(diff.amounts) != 8 * int(changed.sum()):
        raise ValueError(f"{len(diff.amounts)} bytes of differences do not fit {int(changed.sum())} changes")
    planes = np.frombuffer(diff.amounts, dtype=np.uint8).reshape(8, -1)
    zigzag = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)
    out = np.zeros(count, dtype=np.uint64)
    out[changed] = (zigzag >> np.uint64(1)) ^ (np.uint64(0) - (zigzag & np.uint64(1)))
    return out.reshape(columns, rows)


def _base(columns: Named, rows: NDArray[np.intp], earlier: TableState) -> Bits:
    """The values before, in the rows and columns of the later table; zero where there were none."""
    if columns == earlier.columns and len(rows) == earlier.rows and np.array_equal(rows, np.arange(len(rows))):
        return earlier.value_bits
    base = np.zeros((len(columns), len(rows)), dtype=np.uint64)
    before = {name: number for number, name in enumerate(earlier.columns)}
    shared = [(number, before[name]) for number, name in enumerate(columns) if name in before]
    found = np.flatnonzero(rows >= 0)
    if shared and len(found):
        mine, theirs = (np.array(numbers) for numbers in zip(*shared, strict=True))
        base[np.ix_(mine, found)] = earlier.value_bits[np.ix_(theirs, rows[found])]
    return base


def _find_rows(later: TableState, earlier: TableState) -> NDArray[np.intp]:
    """For each row, the row before that has the same keys, or -1; a table without keys is matched by position."""
    if later.keys != earlier.keys or not earlier.rows:
        return np.full(later.rows, -1, dtype=np.intp)
    if not later.keys:
        return np.where(np.arange(later.rows) < earlier.rows, np.arange(later.rows), -1)
    known, wanted = _mixed(earlier.key_bits), _mixed(later.key_bits)
    order = np.argsort(known, kind="stable")
    candidates = order[np.minimum(np.searchsorted(known[order], wanted), earlier.rows - 1)]
    same = (earlier.key_bits[:, candidates] == later.key_bits).all(axis=0)
    return np.where(same, candidates, -1)


def _mixed(keys: Bits) -> Bits:
    factors = np.resize(np.array(_ODD, dtype=np.uint64), len(keys))
    return np.asarray((keys * factors[:, np.newaxis]).sum(axis=0, dtype=np.uint64))


def _steps(rows: NDArray[np.intp]) -> NDArray[np.int32]:
    return np.diff(rows, prepend=-1).astype("<i4") - np.int32(1)


def _walked(data: bytes, before: int) -> NDArray[np.intp]:
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes of rows are no whole number of rows")
    steps = np.frombuffer(data, dtype="<i4").astype(np.int64)
    rows = np.cumsum(steps + 1) - 1
    if len(rows) and (rows.min() < -1 or rows.max() >= before):
        raise ValueError(f"rows point outside the {before} rows before")
    return rows.astype(np.intp)


def _keys_after(diff: TableDiff, keys: Named, rows: NDArray[np.intp], earlier: TableState) -> Bits:
    fresh = rows < 0
    if len(diff.new_keys) != 8 * len(keys) * int(fresh.sum()):
        raise ValueError(f"{len(diff.new_keys)} bytes of keys do not fit {int(fresh.sum())} new rows")
    if keys != earlier.keys and not fresh.all():
        raise ValueError("rows with other keys cannot have been there before")
    bits = np.zeros((len(keys), len(rows)), dtype=np.uint64)
    bits[:, ~fresh] = earlier.key_bits[:, rows[~fresh]] if not fresh.all() else 0
    bits[:, fresh] = np.frombuffer(diff.new_keys, dtype="<u8").reshape(len(keys), -1) if len(keys) else 0
    return bits


def _checked(named: Named) -> Named:
    if len({name for name, _ in named}) != len(named) or any(kind not in _TYPES for _, kind in named):
        raise ValueError("columns with one name, or of no known type")
    return named


def _type_of(column: Column) -> str:
    return f"{column.dtype.kind}{column.dtype.itemsize}"


def _named(columns: Mapping[str, Column]) -> Named:
    return [(name, _type_of(column)) for name, column in columns.items()]


def _stack(columns: Mapping[str, Column], rows: int) -> Bits:
    out = np.empty((len(columns), rows), dtype=np.uint64)
    for number, column in enumerate(columns.values()):
        native = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("="))
        out[number] = native.view(f"u{column.dtype.itemsize}")
    return out


def _restore(named: Sequence[tuple[str, str]], bits: Bits) -> dict[str, Column]:
    return {
        name: bits[number].astype(f"u{kind[1:]}").view("bool" if kind == "b1" else kind)
        for number, (name, kind) in enumerate(named)
    }
