"""Frames as blocks of a segment: each as its difference from the one before, and back."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from api.frame import CGROUP, HOST, CgroupInfo, Frame, Table
from detector.recording.columns import TableDiff, TableState, apply, differ, state_of
from detector.recording.format import FRAME, pack_block, recorded_columns, recorded_tables
from detector.view import HOST_COLUMNS

_KEYS: Mapping[str, set[str]] = {CGROUP: {"cgroup"}, HOST: set()}
"""Keys of tables that are not about blame."""
_EARLIEST_NS, _LATEST_NS = 0, 4_102_444_800 * 10**9
"""Wall clocks of recordings lie between 1970 and 2100, so that every time can be shown."""


class _Infos(msgspec.Struct, array_like=True, frozen=True):
    """The cgroups of a frame: positions in the tuple before, -1 for the next new one."""

    positions: tuple[int, ...]
    new: tuple[CgroupInfo, ...]


class _FrameDiff(msgspec.Struct, array_like=True, frozen=True):
    """Difference of a frame from the one before; None means unchanged."""

    monotonic_ns: int
    wall_ns: int
    cgroups: _Infos | None
    tables: dict[str, TableDiff]
    lost: dict[str, int] | None
    sources: dict[str, str] | None


def essential(frame: Frame) -> Frame:
    """Return the recorded part of a frame, in the same rows and types; the live judge gets it, so a replay is exact."""
    tables = {
        name: Table(dict(table.keys), {c: v for c, v in table.columns.items() if c in _wanted(name) and v.ndim == 1})
        for name, table in frame.tables.items()
        if _is_recorded(name, table)
    }
    return Frame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, tables, frame.lost, frame.sources)


class FrameEncoder:
    """Encodes the frames of one segment in order."""

    def __init__(self) -> None:
        self._before: dict[str, TableState] = {}
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._lost: Mapping[str, int] = {}
        self._sources: Mapping[str, str] = {}

    def encode(self, frame: Frame) -> bytes:
        """The block. Raises ValueError for a frame that cannot be recorded, such as keys that are no numbers."""
        wanted = [name for name, table in frame.tables.items() if _is_recorded(name, table)]
        after = {name: state_of(frame.tables[name], _wanted(name)) for name in wanted}
        diff = _FrameDiff(
            frame.monotonic_ns,
            frame.wall_ns,
            None if frame.cgroups is self._cgroups else _infos(frame.cgroups, self._cgroups),
            {name: differ(state, self._before.get(name, TableState())) for name, state in after.items()},
            None if frame.lost == self._lost else dict(frame.lost),
            None if frame.sources == self._sources else dict(frame.sources),
        )
        block = pack_block(FRAME, msgspec.msgpack.encode(diff), runs_only=diff.cgroups is None)
        self._before = self._before | after
        self._cgroups, self._lost, self._sources = frame.cgroups, dict(frame.lost), dict(frame.sources)
        return block


class FrameDecoder:
    """Decodes the frames of one segment in order."""

    def __init__(self) -> None:
        self._before: dict[str, TableState] = {}
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._lost: Mapping[str, int] = {}
        self._sources: Mapping[str, str] = {}
        self._monotonic_ns: int | None = None

    def decode(self, body: bytes) -> Frame:
        """Return the next frame. Raises ValueError with the reason; nothing can be decoded after that."""
        try:
            diff = msgspec.msgpack.decode(body, type=_FrameDiff)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no frame: {error}") from error
        _check_times(diff, self._monotonic_ns)
        after = {name: _applied(name, each, self._before) for name, each in diff.tables.items()}
        self._before = self._before | after
        self._monotonic_ns = diff.monotonic_ns
        self._cgroups = _infos_after(diff.cgroups, self._cgroups)
        self._lost = self._lost if diff.lost is None else diff.lost
        self._sources = self._sources if diff.sources is None else diff.sources
        tables = {name: state.table() for name, state in after.items()}
        _check_tables(tables, self._cgroups)
        return Frame(diff.monotonic_ns, diff.wall_ns, self._cgroups, tables, self._lost, self._sources)


def _is_recorded(name: str, table: Table) -> bool:
    if name == HOST:
        return not HOST_COLUMNS.isdisjoint(table.columns)
    return name == CGROUP or name in recorded_tables()


def _wanted(table: str) -> frozenset[str]:
    match table:
        case "cgroup":
            return recorded_columns()
        case "host":
            return HOST_COLUMNS
        case _:
            return frozenset((f"{table}_ns",))


def _infos(later: Sequence[CgroupInfo], earlier: Sequence[CgroupInfo]) -> _Infos | None:
    if tuple(later) == tuple(earlier):
        return None
    before = {info.id: position for position, info in enumerate(earlier)}
    positions = [before.get(info.id, -1) for info in later]
    same = [
        position if position >= 0 and (earlier[position] is info or earlier[position] == info) else -1
        for position, info in zip(positions, later, strict=True)
    ]
    return _Infos(tuple(same), tuple(info for position, info in zip(same, later, strict=True) if position < 0))


def _infos_after(diff: _Infos | None, earlier: tuple[CgroupInfo, ...]) -> tuple[CgroupInfo, ...]:
    if diff is None:
        return earlier
    if sum(position < 0 for position in diff.positions) != len(diff.new):
        raise ValueError(f"{len(diff.new)} new cgroups do not fit their positions")
    if any(position >= len(earlier) for position in diff.positions):
        raise ValueError(f"cgroups point outside the {len(earlier)} before")
    fresh = iter(diff.new)
    return tuple(next(fresh) if position < 0 else earlier[position] for position in diff.positions)


def _applied(name: str, diff: TableDiff, before: Mapping[str, TableState]) -> TableState:
    try:
        return apply(diff, before.get(name, TableState()))
    except ValueError as error:
        raise ValueError(f"table {name}: {error}") from error


def _check_times(diff: _FrameDiff, before_ns: int | None) -> None:
    if not _EARLIEST_NS <= diff.wall_ns < _LATEST_NS or not 0 <= diff.monotonic_ns < 1 << 63:
        raise ValueError(f"a frame at wall clock {diff.wall_ns} ns, {diff.monotonic_ns} ns since boot cannot be")
    if before_ns is not None and diff.monotonic_ns < before_ns:
        raise ValueError("a frame is older than the one before")


def _check_tables(tables: Mapping[str, Table], cgroups: Sequence[CgroupInfo]) -> None:
    """Check the invariants of frames, so that no reader need check them."""
    for name, table in tables.items():
        keys = _KEYS.get(name, {"cgroup", "culprit"})
        if set(table.keys) != keys or any(key.dtype != np.uint64 for key in table.keys.values()):
            raise ValueError(f"table {name} must have the keys {', '.join(sorted(keys))}")
        if name == HOST and {len(column) for column in table.columns.values()} != {1}:
            raise ValueError(f"table {name} must have columns of one row")
        if name not in _KEYS and f"{name}_ns" not in table.columns:
            raise ValueError(f"table {name} has no column {name}_ns")
    if CGROUP not in tables or tables[CGROUP].ids.tolist() != [info.id for info in cgroups]:
        raise ValueError("the rows are not those of the cgroups")
