"""The sketch: where values land, and how near its quantiles come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.baselines.sketch import BUCKETS, RESOLUTION, UPPER_EDGES, bucket_of, quantiles

values = st.lists(st.floats(1e-5, 1e11), min_size=1, max_size=200)


def sketch(numbers: list[float]) -> np.ndarray:
    return np.bincount(bucket_of(np.array(numbers)), minlength=BUCKETS)[None, :].astype(np.float32)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        pytest.param(0.0, 0, id="zero"),
        pytest.param(-3.0, 0, id="negative counts as zero"),
        pytest.param(2.0**-20, 0, id="lowest edge belongs to zero"),
        pytest.param(1.0, 80, id="an edge belongs below"),
        pytest.param(1.01, 81, id="above the edge"),
        pytest.param(1e300, BUCKETS - 1, id="beyond the range"),
    ],
)
def test_bucket_of(value: float, bucket: int) -> None:
    assert bucket_of(np.array([value]))[0] == bucket


def test_nothing_counted_has_no_quantile() -> None:
    assert np.isnan(quantiles(np.zeros((2, BUCKETS)), (0.5,))).all()


@given(values, st.sampled_from([0.25, 0.5, 0.75, 0.99]))
def test_quantile_lies_within_a_bucket_of_the_true_one(numbers: list[float], quantile: float) -> None:
    true = np.quantile(numbers, quantile, method="inverted_cdf")
    found = quantiles(sketch(numbers), (quantile,))[0, 0]
    assert true / (1 + RESOLUTION) * 0.999 <= found <= true * (1 + RESOLUTION) * 1.001


@given(values, st.integers(-8, 8))
def test_scaling_by_octaves_scales_quantiles(numbers: list[float], octaves: int) -> None:
    kept = [number for number in numbers if 1e-3 < number < 1e9] or [1.0]
    scaled = [number * 2.0**octaves for number in kept]
    before, after = quantiles(sketch(kept), (0.5, 0.99)), quantiles(sketch(scaled), (0.5, 0.99))
    assert np.allclose(after, before * 2.0**octaves, rtol=RESOLUTION)


def test_edges_rise() -> None:
    assert (np.diff(UPPER_EDGES) > 0).all()
