"""Frames of any shape that the agent could make, and recordings of them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from api.frame import CGROUP, KERNEL_ID, OTHER_ID, CgroupInfo, Column, Frame, Table
from detector.judging.judge import JudgeSettings
from detector.recording.format import Header, encode_header
from detector.recording.frames import FrameEncoder

COUNTERS = ("cpu.oncpu_ns", "cpu.wait_neighbour_ns", "cpu.wait_kernel_ns", "pressure.io_some_us", "pmu.cycles")
GAUGES = ("memstat.limit_bytes",)
ANY64 = st.one_of(st.integers(0, 50), st.sampled_from((0, 2**63, 2**64 - 1)), st.integers(0, 2**64 - 1))
ANY_FLOAT = st.floats(width=64)
NAMES = st.text(max_size=6)


def header(**changed: object) -> Header:
    told = {"run": "r", "number": 0, "settings": JudgeSettings(), "host": {"hostname": "node"}, "checkpoint": b""}
    return Header(**(told | changed))  # type: ignore[arg-type]


def write_segment(path: Path, frames: Iterable[Frame], head: Header | None = None) -> list[int]:
    """A segment file; answers the offset after its header and after each frame."""
    encoder = FrameEncoder()
    ends = []
    with path.open("wb") as stream:
        stream.write(encode_header(head or header()))
        ends.append(stream.tell())
        for frame in frames:
            stream.write(encoder.encode(frame))
            ends.append(stream.tell())
    return ends


@st.composite
def infos(draw: DrawFn) -> tuple[CgroupInfo, ...]:
    ids = draw(st.lists(st.one_of(st.integers(1, 6), ANY64), max_size=5, unique=True))
    return tuple(CgroupInfo(each, f"/{each}", draw(NAMES), workload=draw(st.sampled_from(("", "w")))) for each in ids)


@st.composite
def dense_columns(draw: DrawFn, rows: int) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name in draw(st.lists(st.sampled_from((*COUNTERS, *GAUGES)), unique=True)):
        if name in GAUGES:
            columns[name] = np.array(draw(st.lists(ANY_FLOAT, min_size=rows, max_size=rows)), dtype=np.float64)
        else:
            columns[name] = np.array(draw(st.lists(ANY64, min_size=rows, max_size=rows)), dtype=np.uint64)
    if draw(st.booleans()):
        columns["cpu.wait_hist"] = np.ones((rows, 4), dtype=np.uint64)
    return columns


@st.composite
def blame_tables(draw: DrawFn, ids: list[int]) -> Table:
    anybody = st.sampled_from([*ids, KERNEL_ID, OTHER_ID])
    pairs = draw(st.lists(st.tuples(anybody, anybody), max_size=6))
    amounts = draw(st.lists(ANY64, min_size=len(pairs), max_size=len(pairs)))
    keys = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    return Table({"cgroup": keys[:, 0], "culprit": keys[:, 1]}, {"cpu.blame_ns": np.array(amounts, dtype=np.uint64)})


@st.composite
def runs(draw: DrawFn, most: int = 6) -> list[Frame]:
    """Frames in order of time; cgroups, columns and tables come and go, counters jump about."""
    made: list[Frame] = []
    monotonic = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, most))):
        monotonic += draw(st.integers(0, 10**10))
        again = made and draw(st.booleans())
        cgroups = made[-1].cgroups if again else draw(infos())
        ids = [info.id for info in cgroups]
        tables = {CGROUP: Table({"cgroup": np.array(ids, dtype=np.uint64)}, draw(dense_columns(len(ids))))}
        if draw(st.booleans()):
            tables["cpu.blame"] = draw(blame_tables(ids))
        if draw(st.booleans()):
            tables["host"] = Table({}, {"agent.cgroups": np.array([1.0])})
        lost = draw(st.dictionaries(NAMES, st.integers(0, 2**63), max_size=2))
        sources = draw(st.dictionaries(NAMES, NAMES, max_size=2))
        made.append(Frame(monotonic, draw(st.integers(0, 4 * 10**18)), cgroups, tables, lost, sources))
    return made


def assert_same(one: Frame, other: Frame) -> None:
    """Equal to the bit, NaN and types included."""
    for name in ("monotonic_ns", "wall_ns", "cgroups", "lost", "sources"):
        assert getattr(one, name) == getattr(other, name), name
    assert list(one.tables) == list(other.tables)
    for name, table in one.tables.items():
        for mine, theirs in ((table.keys, other.tables[name].keys), (table.columns, other.tables[name].columns)):
            assert list(mine) == list(theirs)
            for key, column in mine.items():
                assert (column.dtype, column.tobytes()) == (theirs[key].dtype, theirs[key].tobytes()), key


def mangle(value: object, data: st.DataObject) -> object:
    """One place of a nested value, changed."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value, key=str)))
        return value | {key: mangle(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 4)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], mangle(value[place], data), *value[place + 1 :]]
    if isinstance(value, bytes) and value and data.draw(st.booleans()):
        return value[: data.draw(st.integers(0, len(value)))] + data.draw(st.binary(max_size=9))
    return data.draw(st.one_of(st.none(), ANY64, st.integers(-5, 5), st.binary(max_size=16), st.text(max_size=3)))
