"""Histograms against known figures, and what merging, ageing and storing may not change."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.histograms import (
    CPU_BUCKETS,
    CPU_HALF_LIFE_SECONDS,
    MAX_EXPONENT,
    MEMORY_BUCKETS,
    MEMORY_HALF_LIFE_SECONDS,
    DecayingHistograms,
    StoredHistogram,
)

MIB = 1 << 20
NOW = 1_700_000_000.0


def cpu(*samples: tuple[float, int], at: float = NOW) -> DecayingHistograms:
    made = DecayingHistograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS)
    made.resize(1)
    for value, times in samples:
        for _ in range(times):
            made.add(np.array([0]), np.array([value]), at)
    return made


def percentile(histograms: DecayingHistograms, quantile: float, row: int = 0) -> float:
    return float(histograms.percentile(np.array([row]), quantile)[0])


def test_the_number_of_buckets() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (158, 205)


@pytest.mark.parametrize(
    ("quantile", "millicores"), [(0.6, 539), (0.9, 539), (0.95, 1035), (0.98, 2001), (1.0, 2001)], ids=str
)
def test_percentiles_of_cpu(quantile: float, millicores: int) -> None:
    histograms = cpu((0.5, 92), (1.0, 5), (2.0, 3))
    assert int(percentile(histograms, quantile) * 1000) == millicores


@pytest.mark.parametrize(("quantile", "expected"), [(0.95, 217215009), (0.98, 419764742)], ids=str)
def test_percentiles_of_memory(quantile: float, expected: int) -> None:
    histograms = DecayingHistograms(MEMORY_BUCKETS, MEMORY_HALF_LIFE_SECONDS)
    histograms.resize(1)
    for mebibytes, times in ((200, 96), (400, 4)):
        for _ in range(times):
            histograms.add(np.array([0]), np.array([float(mebibytes * MIB)]), NOW)
    assert int(percentile(histograms, quantile)) == expected


def test_an_empty_row_and_the_last_bucket() -> None:
    assert percentile(cpu(), 0.95) == 0.0
    assert percentile(cpu((5000.0, 1)), 0.95) == CPU_BUCKETS.starts[-1]


def test_what_was_not_measured_adds_nothing() -> None:
    histograms = cpu((math.nan, 3))
    assert histograms.is_empty(np.array([0])).all()


def test_a_new_sample_outweighs_an_old_one_of_a_half_life_before() -> None:
    histograms = cpu((4.0, 10))
    for _ in range(6):
        histograms.add(np.array([0]), np.array([1.0]), NOW + CPU_HALF_LIFE_SECONDS)
    assert percentile(histograms, 0.5) < 1.1
    assert percentile(histograms, 0.9) > 3.9


values = st.floats(0.0, 2000.0)
samples = st.lists(st.tuples(values, st.floats(0.0, 20 * CPU_HALF_LIFE_SECONDS)), min_size=1, max_size=30)


@settings(deadline=None)
@given(samples, st.floats(0.0, 1.0))
def test_a_percentile_lies_among_the_samples_within_a_bucket(taken: list[tuple[float, float]], quantile: float) -> None:
    histograms = cpu()
    for value, later in sorted(taken, key=lambda each: each[1]):
        histograms.add(np.array([0]), np.array([value]), NOW + later)
    found = percentile(histograms, quantile)
    ends = CPU_BUCKETS.estimates[CPU_BUCKETS.index(np.array([value for value, _ in taken]))]
    assert ends.min() <= found <= ends.max()


@settings(deadline=None)
@given(samples, samples, st.floats(0.01, 1.0))
def test_rows_do_not_touch_each_other(
    left: list[tuple[float, float]], right: list[tuple[float, float]], quantile: float
) -> None:
    together, alone = cpu(), cpu()
    together.resize(2)
    for row, taken in ((0, left), (1, right)):
        for value, later in taken:
            together.add(np.array([row]), np.array([value]), NOW + later)
    for value, later in left:
        alone.add(np.array([0]), np.array([value]), NOW + later)
    assert percentile(together, quantile) == percentile(alone, quantile)


@settings(deadline=None)
@given(samples, st.floats(0.01, 1.0))
def test_ageing_alone_moves_no_percentile(taken: list[tuple[float, float]], quantile: float) -> None:
    histograms = cpu()
    for value, later in taken:
        histograms.add(np.array([0]), np.array([value]), NOW + later)
    before = percentile(histograms, quantile)
    histograms.add(np.array([0]), np.array([math.nan]), NOW + 30 * CPU_HALF_LIFE_SECONDS)
    assert percentile(histograms, quantile) == before


def test_the_reference_moves_before_weights_grow_out_of_hand() -> None:
    histograms = cpu((1.0, 5))
    later = NOW + 3 * MAX_EXPONENT * CPU_HALF_LIFE_SECONDS
    histograms.add(np.array([0]), np.array([2.0]), later)
    assert histograms.reference_seconds == pytest.approx(later, abs=CPU_HALF_LIFE_SECONDS)
    assert percentile(histograms, 0.01) > 1.9, "what is 300 half-lives old counts as nothing"
    assert np.isfinite(histograms.weights).all()


@settings(deadline=None)
@given(samples, st.floats(0.01, 1.0))
def test_single_precision_tells_the_same_within_a_hundred_thousandth(
    taken: list[tuple[float, float]], quantile: float
) -> None:
    whole = cpu()
    half = DecayingHistograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, single=True)
    half.resize(1)
    for value, later in taken:
        for made in (whole, half):
            made.add_many(np.array([0]), np.array([value]), np.array([NOW + later]))
    assert half.weights.dtype == np.float32
    least, most = (percentile(half, min(max(quantile + by, 0.001), 1.0)) for by in (-1e-5, 1e-5))
    assert least <= percentile(whole, quantile) <= most


def test_single_precision_holds_a_year_of_a_thousand_containers() -> None:
    half = DecayingHistograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS, single=True)
    half.resize(1)
    for day in range(0, 365, 5):
        half.add_many(np.zeros(1000, np.intp), np.full(1000, 1.0), np.full(1000, NOW + day * 86_400.0), 1440.0)
    assert np.isfinite(half.weights).all()
    assert percentile(half, 0.9) == pytest.approx(1.0, rel=0.06)


@settings(deadline=None)
@given(samples)
def test_a_stored_row_comes_back_within_the_grain_of_its_weights(taken: list[tuple[float, float]]) -> None:
    histograms = cpu()
    for value, later in taken:
        histograms.add(np.array([0]), np.array([value]), NOW + later)
    stored = histograms.stored(0)
    assert max(stored.weights.values()) == 10_000
    again = cpu()
    again.load(0, stored)
    shared = np.where(again.weights[0] > 0, histograms.weights[0], 0.0)
    assert again.weights[0].sum() == pytest.approx(histograms.weights[0].sum())
    assert np.abs(again.weights[0] - shared).max() <= histograms.weights[0].max() * 0.02


def test_a_row_stored_under_another_reference_keeps_its_age() -> None:
    old = cpu((4.0, 4))
    new = cpu((1.0, 1), at=NOW + 2 * CPU_HALF_LIFE_SECONDS)
    new.resize(2)
    new.load(1, old.stored(0))
    assert new.weights[1].sum() == pytest.approx(new.weights[0].sum())


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(StoredHistogram(NOW, {900: 1}, 1.0), id="bucket beyond the last"),
        pytest.param(StoredHistogram(NOW, {-1: 1}, 1.0), id="negative bucket"),
        pytest.param(StoredHistogram(NOW, {1: -1}, 1.0), id="negative weight"),
        pytest.param(StoredHistogram(NOW, {1: 1}, math.inf), id="infinite total"),
        pytest.param(StoredHistogram(NOW, {}, 3.0), id="total without weights"),
    ],
)
def test_what_does_not_fit_is_refused(stored: StoredHistogram) -> None:
    with pytest.raises(ValueError, match="weights"):
        cpu().load(0, stored)
