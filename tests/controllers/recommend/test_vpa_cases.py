"""Figures that the Vertical Pod Autoscaler publishes in the tests of its recommender, case by case.

Not compared, because there is no counterpart here: limits and resources of a VerticalPodAutoscaler object
(`maxAllowed`, `controlledResources`, its interval), and the merge of histograms with unlike references, as all rows of
one table share theirs. Amounts are rounded up here and down there, so that a request is never below what was used:
4.5216 cores are 4,522 millicores, not 4,521, and half of 25 millicores is 13, not 12.
"""

from functools import cached_property

import numpy as np
import pytest

from controllers.recommend.estimates import RecommendSettings, recommend, widened
from controllers.recommend.usage import CPU_SAMPLE_WEIGHT, Usage
from detector.histograms import EPSILON, Buckets, DecayingHistograms, Rows, StoredHistogram, Values

HOUR = 3600.0
DAY = 24 * HOUR
MIB = 1 << 20
START = 1_234_567_890.0
ROW = np.array([0])


class Linear(Buckets):
    """Buckets of one width, the scheme of the published tests."""

    @cached_property
    def count(self) -> int:
        return round(self.maximum / self.first) + 1

    @cached_property
    def starts(self) -> Values:
        return self.first * np.arange(self.count, dtype=np.float64)

    def index(self, values: Values) -> Rows:
        return np.clip((np.asarray(values) / self.first).astype(np.intp), 0, self.count - 1)


TEN = Linear(10.0, 1.0)
TENTHS = Linear(1.0, 0.1)

Sample = tuple[float, float, float]
"""Value, weight, hours since the start."""


def filled(buckets: Buckets, *samples: Sample) -> DecayingHistograms:
    made = DecayingHistograms(buckets, HOUR)
    made.resize(1)
    for value, weight, hours in samples:
        made.add_many(ROW, np.array([value]), np.array([START + hours * HOUR]), weight)
    return made


FOUR = tuple((float(each), float(each), 0.0) for each in range(1, 5))
DECAYED = tuple((float(each), float(each), each - 1.0) for each in range(1, 5))
TWO = ((0.1, 0.1, 0.0), (0.2, 0.2, 0.0))
ENDS = (*TWO, (0.0, 0.1, 0.0), (1.0, 0.2, 0.0))

PERCENTILES = [
    ("empty", TEN, (), {-0.5: 0, 0.0: 0, 0.5: 0, 1.0: 0, 1.5: 0}),
    ("four", TEN, FOUR, {0: 2, 0.1: 2, 0.2: 3, 0.3: 3, 0.4: 4, 0.5: 4, 0.6: 4, 0.7: 5, 0.8: 5, 0.9: 5, 1.0: 5}),
    ("out-of-bounds", TENTHS, TWO, {-0.1: 0.2, 1.1: 0.3}),
    ("out-of-bounds-at-the-ends", TENTHS, ENDS, {-0.1: 0.1, 1.1: 1.0}),
    ("decay", TEN, ((2, 1000, 0), (1, 1, 20)), {0.999: 2, 1.0: 3}),
    ("long-decay", TEN, ((2, 1, 0), (1, 1, 101)), {1.0: 2}),
    ("decayed", TEN, DECAYED, {0: 2, 0.02: 2, 0.03: 3, 0.1: 3, 0.11: 4, 0.34: 4, 0.35: 5, 1.0: 5}),
]


@pytest.mark.parametrize(
    ("buckets", "samples", "share", "expected"),
    [
        pytest.param(buckets, samples, share, expected, id=f"{name}-{share}")
        for name, buckets, samples, table in PERCENTILES
        for share, expected in table.items()
    ],
)
def test_percentiles(buckets: Buckets, samples: tuple[Sample, ...], share: float, expected: float) -> None:
    assert filled(buckets, *samples).percentile(ROW, share)[0] == pytest.approx(expected, rel=1e-12)


def test_exponential_buckets() -> None:
    buckets = Buckets(500.0, 40.0, 1.5)
    assert buckets.count == 6
    assert buckets.starts.tolist() == [0.0, 40.0, 100.0, 190.0, 325.0, 527.5]
    assert buckets.index(np.array([-1.0, 39.99, 40.0, 100.0, 900.0])).tolist() == [0, 0, 1, 2, 5]


@pytest.mark.parametrize(
    ("weights", "is_empty"),
    [
        pytest.param((), True, id="nothing"),
        pytest.param((2.5,), False, id="two-and-a-half"),
        pytest.param((2.5, -1.0), False, id="one-and-a-half"),
        pytest.param((2.5, -1.0, -1.0), True, id="a-half"),
    ],
)
def test_a_histogram_is_empty_below_the_least_weight(weights: tuple[float, ...], is_empty: bool) -> None:
    # The published epsilon of the test is 1e-15; the recommender's is 0.001 of the least weight of a sample, as here.
    assert pytest.approx(0.001 * CPU_SAMPLE_WEIGHT) == EPSILON
    made = DecayingHistograms(TENTHS, HOUR)
    made.resize(1)
    for each in weights:
        made.add_many(ROW, np.array([0.1]), np.array([0.0]), each * EPSILON)
    assert made.is_empty(ROW)[0] == is_empty


def test_light_samples_beside_a_heavy_one_leave_a_histogram_filled() -> None:
    made = DecayingHistograms(TEN, HOUR)
    made.resize(1)
    for value, weight in ((9.9, 3.0), (0.1, 0.3), (999.9, 0.3)):
        made.add_many(ROW, np.array([value]), np.array([0.0]), weight * EPSILON)
        assert not made.is_empty(ROW)[0]


@pytest.mark.parametrize(
    ("samples", "total", "weights"),
    [
        pytest.param((), 0.0, {}, id="empty"),
        pytest.param(((1.0, 1.0),), 1.0, {1: 10_000}, id="one"),
        pytest.param(((1.0, 1.0), (2.0, 100_000.0)), 100_001.0, {2: 10_000}, id="relatively-small"),
        pytest.param(((1.0, 1.0), (2.0, 10_000.0), (3.0, 50.0)), 10_051.0, {1: 1, 2: 10_000, 3: 50}, id="several"),
    ],
)
def test_checkpoints_that_are_saved(
    samples: tuple[tuple[float, float], ...], total: float, weights: dict[int, int]
) -> None:
    made = DecayingHistograms(TEN, HOUR)
    made.resize(1)
    for value, weight in samples:
        made.add_many(ROW, np.array([value]), np.array([0.0]), weight)
    stored = made.stored(0)
    assert (stored.total, stored.weights) == (total, weights)


def test_a_checkpoint_that_is_loaded() -> None:
    made = filled(TEN)
    made.load(0, StoredHistogram(START, {0: 1, 1: 2}, 6.0))
    assert made.weights[0, :2].tolist() == [2.0, 4.0]
    assert made.reference_seconds == START


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(StoredHistogram(START, {-1: 1}, 1.0), id="negative-bucket"),
        pytest.param(StoredHistogram(START, {99: 1}, 1.0), id="invalid-bucket"),
        pytest.param(StoredHistogram(START, {}, -1.0), id="negative-total"),
    ],
)
def test_checkpoints_that_are_refused(stored: StoredHistogram) -> None:
    with pytest.raises(ValueError, match="weights"):
        filled(TEN).load(0, stored)


def test_percentiles_of_cpu_and_of_peaks_of_memory() -> None:
    usage = Usage()
    streams = usage.open(np.zeros(3, np.intp))
    usage.add_cpu(streams, np.full(3, START), np.array([1.0, 2.0, 3.0]))
    usage.add_memory(streams, np.full(3, START), np.array([1e9, 2e9, 3e9]))
    assert usage.cpu.percentile(ROW, 0.2)[0] == pytest.approx(1.0, rel=0.05)
    assert usage.memory.percentile(ROW, 0.5)[0] == pytest.approx(2e9, rel=0.05)


@pytest.mark.parametrize(
    ("amount", "confidence", "exponent", "expected"),
    [
        (3.14, 0.00625, 2.0, 907.46),
        (3.14e9, 0.00625, 2.0, 9.0746e11),
        (3.14, 0.5, 2.0, 4.5216),
        (3.14e9, 0.5, 2.0, 4.5216e9),
        (3.14, 0.0, 2.0, 1e14),
        (3.14, 0.0, -1.0, 0.0),
    ],
    ids=str,
)
def test_amounts_by_confidence(amount: float, confidence: float, exponent: float, expected: float) -> None:
    found = widened(np.array([amount]), np.array([confidence]), 0.1, exponent)
    assert found[0] == pytest.approx(expected, rel=1e-9)


def test_the_margin_and_the_least_amounts() -> None:
    usage = Usage()
    streams = usage.open(ROW)
    usage.add_cpu(streams, np.array([START]), np.array([3.14]))
    usage.add_memory(streams, np.array([START]), np.array([4e8]))
    plain, more = (recommend(usage, ROW, settings=RecommendSettings(margin_ratio=margin)) for margin in (0.0, 0.1))
    assert more.cpu_millicores.target[0] == pytest.approx(1.1 * plain.cpu_millicores.target[0], abs=2)
    assert more.memory_bytes.target[0] == pytest.approx(1.1 * plain.memory_bytes.target[0], abs=2)
    small = RecommendSettings(margin_ratio=0.0, min_cpu_millicores=200.0, min_memory_bytes=2e7)
    least = recommend(usage, ROW, settings=small)
    assert least.cpu_millicores.target[0] == plain.cpu_millicores.target[0]
    assert least.memory_bytes.target[0] == plain.memory_bytes.target[0]


def peaks(usage: Usage) -> list[tuple[float, float]]:
    """Upper ends of the buckets that hold a peak, and the hours after the start that their weight dates them to."""
    weights = usage.memory.weights[0]
    held = np.flatnonzero(weights >= EPSILON)
    assert usage.memory.reference_seconds is not None
    hours = np.log2(weights[held]) * 24 + (usage.memory.reference_seconds - START) / HOUR
    return list(zip(usage.memory.buckets.estimates[held].tolist(), hours.round(6).tolist(), strict=True))


def test_valid_samples_count_and_invalid_ones_do_not() -> None:
    usage = Usage()
    usage.open(ROW)
    half = 12 * HOUR
    for step, (cores, used) in enumerate(((3.14, 5e9), (6.28, 1e10), (1.57, 2e9))):
        at = np.array([START + step * half])
        assert usage.add_cpu(ROW, at, np.array([cores])) == 1
        assert usage.add_memory(ROW, at, np.array([used])) == 1
    assert usage.add_cpu(ROW, np.array([START + 2 * half]), np.array([1.0])) == 0, "not newer"
    for step, value in ((4, -1.0), (4, -1.0)):
        at = np.array([START + step * half])
        assert usage.add_cpu(ROW, at, np.array([value])) == usage.add_memory(ROW, at, np.array([value])) == 0
    assert peaks(usage) == [(pytest.approx(2e9, rel=0.06), 48.0), (pytest.approx(1e10, rel=0.06), 24.0)]


@pytest.mark.parametrize(
    ("used_mib", "kills", "expected_mib", "window_hours"),
    [
        pytest.param(0, [(0, 1000)], 1200, 24, id="a-fifth-more"),
        pytest.param(0, [(0, 1000), (0, 999), (0, 999)], 1200, 24, id="smaller-ones-do-not-add-up"),
        pytest.param(0, [(0, 1000), (0, 999), (0, 2000)], 2400, 24, id="a-larger-one-counts"),
        pytest.param(0, [(0, 1)], 101, 24, id="at-least-100-mib"),
        pytest.param(3000, [(0, 1000)], 3600, 24, id="above-what-was-used"),
        pytest.param(1000, [(-30, 1000)], 1000, 24, id="too-old"),
        pytest.param(2000, [(48, 1000)], 2400, 72, id="in-a-new-window"),
    ],
)
def test_oom_kills(used_mib: int, kills: list[tuple[int, int]], expected_mib: int, window_hours: int) -> None:
    usage = Usage()
    usage.open(ROW)
    if used_mib:
        usage.add_memory(ROW, np.array([START]), np.array([float(used_mib * MIB)]))
    for hours, requested in kills:
        usage.add_oom(ROW, np.array([START + hours * HOUR]), np.array([float(requested * MIB)]))
    found = {hours: amount for amount, hours in peaks(usage)}
    assert found[window_hours] == pytest.approx(expected_mib * MIB, rel=0.06)
    assert found[window_hours] >= expected_mib * MIB
