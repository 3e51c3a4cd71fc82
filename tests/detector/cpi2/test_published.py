"""CPI2: the published thresholds, the history's arithmetic, and the correlation's sign and bounds."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detector.cpi2.published import (
    Cpi2Policy,
    CpiSamples,
    CpiSpec,
    OutlierCounter,
    antagonist_scores,
    antagonists,
    gather,
    merge_samples,
    outliers,
    refresh,
)

POLICY = Cpi2Policy()
BUSY = 1.0


@pytest.mark.parametrize(
    ("cpi", "usage", "spec", "outlier"),
    [
        pytest.param(2.41, BUSY, CpiSpec(500, 2.0, 0.2), True, id="above mean + 2 sigma"),
        pytest.param(2.39, BUSY, CpiSpec(500, 2.0, 0.2), False, id="below"),
        pytest.param(9.0, 0.24, CpiSpec(500, 2.0, 0.2), False, id="hardly ran"),
        pytest.param(9.0, 0.25, CpiSpec(500, 2.0, 0.2), True, id="ran just enough"),
        pytest.param(9.0, BUSY, None, False, id="no history"),
        pytest.param(np.nan, BUSY, CpiSpec(500, 2.0, 0.2), False, id="not measured"),
    ],
)
def test_outlier(cpi: float, usage: float, spec: CpiSpec | None, outlier: bool) -> None:
    assert outliers(np.array([cpi]), np.array([usage]), [spec], POLICY).tolist() == [outlier]


@pytest.mark.parametrize(
    ("times", "anomaly"),
    [
        pytest.param([0, 60, 120], True, id="three in five minutes"),
        pytest.param([0, 120, 299], True, id="just inside"),
        pytest.param([0, 120, 300], False, id="the first has left the window"),
        pytest.param([0, 60], False, id="two are not enough"),
    ],
)
def test_three_outliers_in_five_minutes(times: list[float], anomaly: bool) -> None:
    counter = OutlierCounter(POLICY)
    found = [counter.anomalies(["calm", "hurt"], np.array([False, True]), now).tolist() for now in times]
    assert found[-1] == [False, anomaly]
    assert found[0] == [False, False]


def day(seed: int, tasks: int = 5, samples: int = 100, mean: float = 2.0) -> CpiSamples:
    rng = np.random.default_rng(seed)
    parts = [
        gather([f"{seed}-{t}"] * samples, rng.normal(mean, 0.2, samples), np.ones(samples), POLICY)
        for t in range(tasks)
    ]
    return reduce(merge_samples, parts)


@pytest.mark.parametrize(
    ("tasks", "samples", "known"),
    [
        pytest.param(5, 100, True, id="enough"),
        pytest.param(4, 200, False, id="too few tasks"),
        pytest.param(5, 99, False, id="too few samples"),
    ],
)
def test_history_needs_tasks_and_samples(tasks: int, samples: int, known: bool) -> None:
    assert (refresh(None, day(1, tasks, samples), POLICY) is not None) == known


def test_history_is_what_numpy_computes() -> None:
    rng = np.random.default_rng(1)
    drawn = np.concatenate([rng.normal(2.0, 0.2, 100) for _ in range(5)])
    spec = refresh(None, day(1), POLICY)
    assert spec is not None
    assert (spec.count, spec.mean, spec.sigma) == pytest.approx((500, drawn.mean(), drawn.std()))


def test_refresh_ages_history_and_keeps_it_when_the_day_was_thin() -> None:
    first = refresh(None, day(1), POLICY)
    assert first is not None
    assert refresh(first, day(2, tasks=1), POLICY) == first
    second = refresh(first, day(2, mean=3.0), POLICY)
    assert second is not None
    assert second.count == pytest.approx(0.9 * 500 + 500)
    assert first.mean + 0.5 < second.mean < 3.0
    assert second.sigma > 0.4


def test_samples_of_little_usage_are_left_out() -> None:
    kept = gather(["t"] * 4, np.array([1.0, 2.0, np.nan, 3.0]), np.array([1.0, 0.1, 1.0, 0.3]), POLICY)
    assert (kept.count, kept.mean) == (2, 2.0)


floats = st.lists(st.floats(0.1, 50), max_size=20)


@given(floats, floats, floats)
def test_merging_samples_is_associative_and_commutative(one: list[float], two: list[float], three: list[float]) -> None:
    a, b, c = (
        gather([n] * len(v), np.array(v), np.ones(len(v)), POLICY)
        for n, v in zip("abc", (one, two, three), strict=True)
    )
    left, right = merge_samples(merge_samples(a, b), c), merge_samples(c, merge_samples(b, a))
    assert left.by_task == right.by_task
    assert left.mean == pytest.approx(right.mean)
    assert left.squares == pytest.approx(right.squares, abs=1e-6)
    everything = [*one, *two, *three]
    if everything:
        assert left.squares == pytest.approx(np.var(everything) * len(everything), abs=1e-6)


def one_victim(harm: np.ndarray, threshold: float, usage: np.ndarray) -> np.ndarray:
    return antagonist_scores(harm[:, None], np.array([threshold]), usage)[0]


def test_the_score_parts_a_steady_neighbour_from_the_one_that_goes_with_the_loss() -> None:
    lost = np.array([0.0, 0.5, 0.0, 0.5, 0.0, 0.5])
    activity = np.stack([lost * 100, np.full(6, 50.0), np.zeros(6), 50 - lost * 100], axis=1)
    assert one_victim(lost, 0.05, activity) == pytest.approx([0.9, -0.05, 0.0, -1.0])


def test_the_one_that_runs_while_the_victim_suffers_is_named() -> None:
    cpi = np.array([1.0, 6.0, 1.0, 6.0, 1.0, 6.0])
    usage = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]] * 3)
    scores = one_victim(cpi, 2.0, usage)
    assert scores == pytest.approx([2 / 3, -0.5, (2 / 3 - 0.5) / 2, 0.0])
    assert antagonists(scores, POLICY).tolist() == [0]


def test_nobody_is_named_when_nothing_correlates() -> None:
    assert len(antagonists(one_victim(np.full(10, 1.0), 2.0, np.ones((10, 3))), POLICY)) == 0


def test_moments_not_measured_blame_nobody() -> None:
    cpi = np.array([np.nan, 4.0])
    assert one_victim(cpi, 2.0, np.array([[5.0], [1.0]])) == pytest.approx([0.5])


def test_threshold_must_be_positive() -> None:
    with pytest.raises(ValueError, match="not positive"):
        one_victim(np.ones(1), 0.0, np.ones((1, 1)))


@given(
    arrays(np.float64, 8, elements=st.floats(0.01, 100)),
    arrays(np.float64, (8, 4), elements=st.floats(0, 64)),
    st.permutations(range(4)),
    st.integers(-6, 6),
)
def test_scores_are_bounded_and_follow_permutation_and_scale(
    cpi: np.ndarray, usage: np.ndarray, order: list[int], octaves: int
) -> None:
    usage = np.where(usage < 1e-3, 0.0, usage)
    scores = one_victim(cpi, 2.0, usage)
    assert (np.abs(scores) <= 1.0 + 1e-12).all()
    assert one_victim(cpi, 2.0, usage[:, order]) == pytest.approx(scores[order])
    assert one_victim(cpi, 2.0, usage * 2.0**octaves) == pytest.approx(scores)
