"""Deltas between frames: matched by key, never negative, never a whole counter taken for growth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import Frame, Table
from api.window import Window, subtract
from tests.frames import make_frame


def test_growth_by_row_and_rate() -> None:
    before = make_frame(10, {1: "/a", 2: "/b"}, {"cpu.wait_ns": [100, 200]})
    after = make_frame(12, {2: "/b", 1: "/a"}, {"cpu.wait_ns": [260, 100]})
    delta = Window([before, after]).delta()
    assert delta.table.columns["cpu.wait_ns"].tolist() == [60, 0]
    assert delta.rate("cpu.wait_ns").tolist() == [30.0, 0.0]


def test_a_cgroup_born_inside_counts_from_zero() -> None:
    before = make_frame(0, {1: "/a"}, {"cpu.wait_ns": [5]})
    after = make_frame(1, {1: "/a", 3: "/new"}, {"cpu.wait_ns": [6, 40]})
    assert Window([before, after]).delta().table.columns["cpu.wait_ns"].tolist() == [1, 40]


def test_a_counter_that_went_back_is_a_reset() -> None:
    delta = Window(
        [make_frame(0, {1: "/a"}, {"cpu.wait_ns": [50]}), make_frame(1, {1: "/a"}, {"cpu.wait_ns": [7]})]
    ).delta()
    assert delta.table.columns["cpu.wait_ns"].tolist() == [7]
    assert delta.resets == 1


def test_gauges_stand() -> None:
    window = Window(
        [
            make_frame(0, {1: "/a"}, {"memstat.usage_bytes": [50.0]}),
            make_frame(1, {1: "/a"}, {"memstat.usage_bytes": [7.0]}),
        ]
    )
    delta = window.delta()
    assert delta.table.columns["memstat.usage_bytes"].tolist() == [7.0]
    assert delta.resets == 0


def test_a_column_the_older_frame_lacks_is_left_out() -> None:
    before = make_frame(0, {1: "/a"}, {"cpu.wait_ns": [5]})
    after = make_frame(1, {1: "/a"}, {"cpu.wait_ns": [5], "cpu.wait_count": [1000]})
    assert "cpu.wait_count" not in Window([before, after]).delta().table.columns


def test_a_sparse_table_is_counted_from_the_first_frame_that_has_it() -> None:
    cgroups = {1: "/a", 2: "/b"}
    frames = [
        make_frame(0, cgroups, {"cpu.wait_ns": [0, 0]}),
        make_frame(5, cgroups, {"cpu.wait_ns": [0, 0]}, {(1, 2): 10}),
        make_frame(9, cgroups, {"cpu.wait_ns": [0, 0]}, {(1, 2): 25, (2, 1): 3}),
    ]
    delta = Window(frames).delta("cpu.blame")
    assert delta.seconds == 4
    pairs = zip(delta.table.ids.tolist(), delta.table.keys["culprit"].tolist(), strict=True)
    assert dict(zip(pairs, delta.table.columns["cpu.blame_ns"].tolist(), strict=True)) == {(1, 2): 15, (2, 1): 3}


def test_one_frame_has_no_delta() -> None:
    with pytest.raises(ValueError, match="two frames"):
        Window([make_frame(0, {1: "/a"}, {"cpu.wait_ns": [5]})]).delta()


def test_tail_spans_at_least_the_time_asked() -> None:
    frames = [make_frame(t, {1: "/a"}, {"cpu.wait_ns": [0]}) for t in (0, 1, 2, 3, 4)]
    assert Window(frames).tail(2.0).seconds == 2.0
    assert Window(frames).tail(2.5).seconds == 3.0
    assert Window(frames).tail(99.0).seconds == 4.0


@given(
    st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.integers(0, 1000), max_size=20),
    st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.integers(0, 1000), max_size=20),
)
def test_keys_are_matched_whatever_the_order(
    earlier: dict[tuple[int, int], int], later: dict[tuple[int, int], int]
) -> None:
    def table(rows: dict[tuple[int, int], int]) -> Table:
        keys = np.array(list(rows) or np.empty((0, 2)), dtype=np.uint64)
        return Table(
            {"cgroup": keys[:, 0], "culprit": keys[:, 1]}, {"n": np.array(list(rows.values()), dtype=np.uint64)}
        )

    grown, _ = subtract(table(later), table(earlier))
    found = dict(
        zip(
            zip(grown.ids.tolist(), grown.keys["culprit"].tolist(), strict=True),
            grown.columns["n"].tolist(),
            strict=True,
        )
    )
    expected = {
        key: value - earlier.get(key, 0) if value >= earlier.get(key, 0) else value for key, value in later.items()
    }
    assert found == expected


def test_a_delta_leaves_its_frames_alone() -> None:
    before = make_frame(0, {1: "/a", 2: "/b"}, {"cpu.wait_ns": [50, 5]})
    after = make_frame(1, {1: "/a", 2: "/b"}, {"cpu.wait_ns": [7, 9]})
    assert Window([before, after]).delta().table.columns["cpu.wait_ns"].tolist() == [7, 4]
    assert before.cgroup.columns["cpu.wait_ns"].tolist() == [50, 5]
    assert after.cgroup.columns["cpu.wait_ns"].tolist() == [7, 9]


def read_at(frame: Frame, *seconds: float, column: str = "cpustat.usage_ns") -> Frame:
    return replace(frame, read_ns={column: np.array(seconds) * 1e9})


def test_growth_of_a_column_read_in_turn_is_known_where_it_was_read_now() -> None:
    paths = {1: "/fresh", 2: "/waiting", 3: "/never"}
    before = read_at(make_frame(19, paths, {"cpustat.usage_ns": [0, 0, 0]}), 10, 12, np.nan)
    after = read_at(make_frame(20, paths | {4: "/new"}, {"cpustat.usage_ns": [1, 0, 0, 1]}), 20, 12, np.nan, 20)
    window = Window([before, after])
    np.testing.assert_equal(window.reading_seconds("cpustat.usage_ns"), [10.0, np.nan, np.nan, 1.0])
    np.testing.assert_equal(window.reading_seconds("cpu.wait_ns"), [1.0] * 4)
