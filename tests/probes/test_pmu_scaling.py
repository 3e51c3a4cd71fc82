"""Scaling by enabled/running: right per interval, never backwards, zero from zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from probes.pmu_scaling import EventTimes, ScaledCounts

ONE = 1  # CPU
EVENT = 1


def _ids(*ids: int) -> NDArray[np.uint64]:
    return np.array(ids, dtype=np.uint64)


def _raw(*cgroups: list[tuple[int, int]]) -> NDArray[np.uint64]:
    """For each cgroup and CPU the count of one event and the time held."""
    return np.array(cgroups, dtype=np.uint64)


def _times(*cpus: tuple[int, int]) -> EventTimes:
    """(enabled, running) of the one event on each CPU."""
    array = np.array(cpus, dtype=np.uint64)
    return EventTimes(array[:, :1], array[:, 1:])


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([(100, (50, 50))], [100], id="always-running-is-exact"),
        pytest.param([(100, (50, 25))], [200], id="half-the-time"),
        pytest.param([(100, (50, 25)), (100, (100, 75))], [200, 200], id="a-quiet-interval-adds-nothing"),
        pytest.param([(0, (50, 0)), (100, (100, 50))], [0, 200], id="an-unseen-interval-waits-for-the-next"),
        pytest.param([(100, (50, 50)), (101, (51, 51))], [100, 101], id="cumulative"),
        pytest.param([(2**60 + 1, (5, 5))], [2**60 + 1], id="exact-beyond-a-double"),
        pytest.param([(10**9, (1_000_000, 999_950))], [10**9], id="starting-up-is-not-multiplexing"),
        pytest.param([(100, (50, 50)), (130, (20, 10))], [100, 160], id="times-restart-when-a-cpu-returns"),
    ],
)
def test_estimates(readings: list[tuple[int, tuple[int, int]]], expected: list[int]) -> None:
    scaled = ScaledCounts(ONE, EVENT)
    totals = [scaled.advance(_ids(7), _raw([(count, 0)]), _times(times)).counts[0, 0] for count, times in readings]
    assert totals == expected


def test_each_cpu_is_scaled_by_its_own_share() -> None:
    scaled = ScaledCounts(cpus=2, events=EVENT)
    estimates = scaled.advance(_ids(7), _raw([(100, 40), (100, 60)]), _times((50, 50), (50, 10)))
    assert estimates.counts[0, 0] == 100 + 500
    assert estimates.enabled_ns[0] == 100
    assert estimates.running_ns[0] == 40 + 12


def test_rows_are_matched_by_cgroup_not_by_position() -> None:
    scaled = ScaledCounts(ONE, EVENT)
    scaled.advance(_ids(1, 2), _raw([(10, 1)], [(1000, 1)]), _times((4, 2)))
    estimates = scaled.advance(_ids(3, 2, 1), _raw([(5, 1)], [(1001, 2)], [(20, 3)]), _times((8, 6)))
    assert estimates.counts[:, 0].tolist() == [5, 2001, 30]
    assert estimates.enabled_ns.tolist() == [1, 2, 3]


def test_a_dropped_cgroup_starts_afresh() -> None:
    scaled = ScaledCounts(ONE, EVENT)
    scaled.advance(_ids(1), _raw([(10, 1)]), _times((1, 1)))
    scaled.advance(_ids(), np.empty((0, 1, 2), dtype=np.uint64), _times((2, 2)))
    assert scaled.advance(_ids(1), _raw([(3, 1)]), _times((3, 3))).counts[0, 0] == 3


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**9), st.floats(0, 1)), min_size=1, max_size=20))
def test_estimates_never_shrink_and_never_fall_below_the_count(intervals: list[tuple[int, int, float]]) -> None:
    scaled = ScaledCounts(ONE, EVENT)
    count = enabled = running = last = 0
    for grown, wanted, share in intervals:
        ran = int(wanted * share)
        count, enabled, running = count + (grown if ran else 0), enabled + wanted, running + ran
        estimates = scaled.advance(_ids(1), _raw([(count, enabled)]), _times((enabled, running)))
        total = int(estimates.counts[0, 0])
        assert total >= last
        assert total >= count
        assert estimates.running_ns[0] <= estimates.enabled_ns[0]
        last = total


def test_who_was_let_go_counts_from_zero_when_it_is_back() -> None:
    scaled = ScaledCounts(ONE, EVENT)
    scaled.advance(_ids(7, 8), _raw([(100, 10)], [(40, 4)]), _times((10, 10)))
    scaled.keep(_ids(8))
    estimates = scaled.advance(_ids(7, 8), _raw([(5, 1)], [(45, 5)]), _times((20, 20)))
    assert estimates.counts[:, 0].tolist() == [5, 45]
    assert estimates.enabled_ns.tolist() == [1, 5]
