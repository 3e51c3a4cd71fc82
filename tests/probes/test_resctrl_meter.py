"""Readings that fail, restart or pause become cumulative bytes that never shrink."""

import math

import pytest

from probes.resctrl_meter import Meter, Metered

NAN = math.nan


def _readings(occupancy: float, total: float, local: float, domain: int = 0) -> dict[tuple[str, int], float]:
    return {
        ("llc_occupancy", domain): occupancy,
        ("mbm_total_bytes", domain): total,
        ("mbm_local_bytes", domain): local,
    }


def test_domains_are_added() -> None:
    readings = _readings(10, 100, 60) | _readings(5, 40, 1, domain=1)
    assert Meter().advance(0.0, readings) == Metered(15, 140, 61)


def test_growth_is_added_up() -> None:
    meter = Meter()
    totals = [meter.advance(now, _readings(0, value, 0)).mbm_total_bytes for now, value in enumerate((0, 70, 100))]
    assert totals == [0, 70, 100]


def test_a_counter_that_began_again_counts_from_zero() -> None:
    meter = Meter()
    meter.advance(0.0, _readings(0, 1000, 0))
    assert meter.advance(1.0, _readings(0, 30, 0)).mbm_total_bytes == 1030
    assert meter.advance(2.0, _readings(0, 50, 0)).mbm_total_bytes == 1050


def test_a_reading_that_fails_is_nan_and_costs_nothing_later() -> None:
    meter = Meter()
    meter.advance(0.0, _readings(7, 100, 10))
    failed = meter.advance(1.0, _readings(NAN, NAN, 20))
    assert math.isnan(failed.llc_occupancy_bytes)
    assert math.isnan(failed.mbm_total_bytes)
    assert failed.mbm_local_bytes == 20
    assert meter.advance(2.0, _readings(7, 130, 30)) == Metered(7, 130, 30)


def test_one_failed_domain_makes_the_sum_unknown_but_loses_no_bytes() -> None:
    meter = Meter()
    half = meter.advance(0.0, _readings(1, NAN, 0) | _readings(1, 40, 0, domain=1))
    assert math.isnan(half.mbm_total_bytes)
    whole = meter.advance(1.0, _readings(1, 60, 0) | _readings(1, 50, 0, domain=1))
    assert whole.mbm_total_bytes == 110


def test_events_the_machine_lacks_are_nan() -> None:
    metered = Meter().advance(0.0, {("llc_occupancy", 0): 4096.0})
    assert metered.llc_occupancy_bytes == 4096
    assert math.isnan(metered.mbm_total_bytes)


def test_rest_goes_on_as_last_measured() -> None:
    meter = Meter()
    meter.advance(0.0, _readings(5, 0, 0))
    meter.advance(10.0, _readings(9, 1000, 100))
    meter.rest(10.0)
    assert meter.assumed(15.0) == Metered(9, 1500, 150)


def test_the_next_turn_begins_where_rest_ended_with_a_fresh_counter() -> None:
    meter = Meter()
    meter.advance(0.0, _readings(5, 0, 0))
    meter.advance(10.0, _readings(9, 1000, 0))
    meter.rest(10.0)
    assert meter.advance(20.0, _readings(0, 0, 0)).mbm_total_bytes == 2000
    assert meter.advance(21.0, _readings(3, 40, 0)).mbm_total_bytes == 2040


def test_a_turn_without_a_number_leaves_rest_unknown() -> None:
    meter = Meter()
    meter.advance(0.0, _readings(NAN, NAN, NAN))
    meter.rest(10.0)
    assert math.isnan(meter.assumed(11.0).mbm_total_bytes)


@pytest.mark.parametrize(
    "pauses",
    [
        pytest.param((1.0, 5.0), id="longer-pause"),
        pytest.param((0.0, 0.0), id="no-pause"),
        pytest.param((3.0, 0.5), id="shorter-pause"),
    ],
)
def test_totals_never_shrink_over_turns(pauses: tuple[float, float]) -> None:
    meter, now, last = Meter(), 0.0, 0.0
    for turn in range(6):
        for step in range(3):
            now += 1.0
            total = meter.advance(now, _readings(0, step * turn * 10.0, 0)).mbm_total_bytes
            assert total >= last
            last = total
        meter.rest(now)
        now += pauses[turn % 2]
        assert meter.assumed(now).mbm_total_bytes >= last
