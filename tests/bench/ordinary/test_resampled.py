"""Recorded ticks in another order: what each adds is what the judge sees, and no clock or counter runs backwards."""

from random import Random

import numpy as np
import pytest

from api.frame import CGROUP, HOST, OTHER_ID, Frame, Table
from api.window import subtract
from bench.ordinary.resampled import Series, Tick, Ticks
from detector.blame import blame_between
from tests.frames import make_frame

PATHS = {1: "/web", 2: "/batch", 3: "/cron"}


def recording(count: int = 40) -> list[Frame]:
    """Cgroup 3 comes and goes, a counter runs backwards once, pairs come one by one and are folded, ticks differ."""
    random, seconds, busy = Random(1), 0.0, 0
    waited = dict.fromkeys(PATHS, 0)
    pairs: dict[tuple[int, int], int] = {}
    made = []
    for number in range(count):
        seconds += random.choice((1.0, 1.0, 1.4))
        alive = {each: path for each, path in PATHS.items() if each != 3 or number % 7 < 5}
        waited = {each: (waited[each] + random.randrange(10**8)) if each in alive else 0 for each in PATHS}
        if number == 20:
            waited[2] = 5
        for culprit in range(2, 3 + number // 10):
            pairs[1, culprit] = pairs.get((1, culprit), 0) + random.randrange(1, 10**8)
        if number == 30:
            pairs[1, OTHER_ID] = pairs.pop((1, 4)) + 17
        columns = {
            "cpu.wait_neighbour_ns": [waited[each] for each in alive],
            "memstat.usage_bytes": [random.random() if number % 9 else float("nan") for _ in alive],
        }
        frame = make_frame(seconds, alive, columns, pairs if number % 4 else None)
        busy += random.randrange(10**9)
        host = Table({}, {"hostwide.busy_ns": np.array([busy], dtype=np.uint64)})
        made.append(
            Frame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, {**frame.tables, HOST: host}, sources={"a": ""})
        )
    return made


def ticks_of(frames: list[Frame]) -> list[Tick]:
    taken = Ticks()
    return [tick for frame in frames if (tick := taken.take(frame)) is not None]


def test_each_tick_adds_to_the_series_what_it_added_when_it_was_recorded() -> None:
    frames = recording()
    ticks = ticks_of(frames)
    series, random = Series(frames[-1], ticks), Random(2)
    before, latest_blame = frames[-1], frames[-1]
    for _ in range(30):
        start = random.randrange(len(ticks) - 6)
        for place, tick in enumerate(ticks[start : start + 6]):
            frame = series.follow(tick)
            assert frame.monotonic_ns - before.monotonic_ns == frame.wall_ns - before.wall_ns == tick.passed_ns > 0
            assert tuple(frame.cgroup.ids.tolist()) == tuple(info.id for info in frame.cgroups)
            assert frame.cgroups == frames[start + place + 1].cgroups
            for name in (CGROUP, HOST):
                grown, resets = subtract(frame.tables[name], before.tables[name])
                assert not resets
                for column, values in tick.grown[name].columns.items():
                    np.testing.assert_array_equal(grown.columns[column], values)
            if "cpu.blame" in frame.tables:
                blame, recorded = blame_between(latest_blame, frame, "cpu.blame"), tick.grown["cpu.blame"]
                seconds = frame.monotonic_ns - latest_blame.monotonic_ns
                np.testing.assert_array_equal(blame.culprits, recorded.keys["culprit"])
                np.testing.assert_allclose(blame.amounts * seconds, recorded.columns["cpu.blame_ns"])
                latest_blame = frame
            before = frame


def test_what_pairs_had_before_they_were_folded_is_no_growth() -> None:
    grown = ticks_of(recording())[29].grown["cpu.blame"]
    amounts = dict(zip(grown.keys["culprit"].tolist(), grown.columns["cpu.blame_ns"].tolist(), strict=True))
    assert amounts[OTHER_ID] < 2 * 10**8


def test_ticks_in_their_own_order_are_the_recording() -> None:
    frames = recording(20)
    series = Series(frames[0], ticks_of(frames))
    for frame, tick in zip(frames[1:], ticks_of(frames), strict=True):
        again = series.follow(tick)
        assert (again.monotonic_ns, again.cgroups, again.sources) == (frame.monotonic_ns, frame.cgroups, frame.sources)
        kept = frame.cgroup.columns
        rows = np.isin(frame.cgroup.ids, [1, 2])
        np.testing.assert_array_equal(
            again.cgroup.columns["cpu.wait_neighbour_ns"][rows], kept["cpu.wait_neighbour_ns"][rows]
        )
        np.testing.assert_array_equal(again.cgroup.columns["memstat.usage_bytes"], kept["memstat.usage_bytes"])


@pytest.mark.parametrize("missing", [CGROUP, HOST])
def test_a_counter_that_was_not_measured_for_a_tick_is_not_measured_in_the_series(missing: str) -> None:
    table = {CGROUP: lambda value: Table({"cgroup": np.array([1], dtype=np.uint64)}, {"pmu.cycles": np.array([value])})}
    table[HOST] = lambda value: Table({}, {"hostwide.busy_ns": np.array([value])})
    frames = []
    for number, value in enumerate([1.0, 3.0, float("nan"), 7.0, 9.0]):
        made = make_frame(number, {1: "/web"}, {})
        tables = {**made.tables, missing: table[missing](value)}
        frames.append(Frame(made.monotonic_ns, made.wall_ns, made.cgroups, tables))
    ticks = ticks_of(frames)
    series = Series(frames[-1], ticks)
    column = next(iter(frames[0].tables[missing].columns))
    seen = [series.follow(tick).tables[missing].columns[column].item() for tick in ticks]
    np.testing.assert_array_equal(seen, [11.0, np.nan, np.nan, 13.0])
