"""Log2 slots and the percentiles read from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.histogram import SLOTS, UPPER_EDGES_NS, percentile_ns, slot_of


@pytest.mark.parametrize(
    ("duration_ns", "slot"),
    [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 2), (1 << 33, 24), (1 << 34, 25), (1 << 60, 25)],
)
def test_slot(duration_ns: int, slot: int) -> None:
    assert slot_of(duration_ns) == slot


@given(st.integers(0, (1 << 34) - 1))
def test_a_duration_is_below_the_edge_of_its_slot(duration_ns: int) -> None:
    slot = slot_of(duration_ns)
    assert duration_ns < int(UPPER_EDGES_NS[slot])
    assert slot == 0 or duration_ns >= int(UPPER_EDGES_NS[slot - 1])


@given(st.lists(st.integers(1, 1 << 33), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_percentile_is_within_a_factor_of_two(durations: list[int], quantile: float) -> None:
    slots = np.bincount([slot_of(duration) for duration in durations], minlength=SLOTS)
    exact = float(np.quantile(np.array(durations, dtype=np.float64), quantile, method="inverted_cdf"))
    estimate = float(percentile_ns(slots, quantile))
    assert estimate <= 2 * max(exact, 512) + 1
    assert exact <= 2 * max(estimate, 512) + 1


def test_an_empty_histogram_has_no_percentile() -> None:
    assert np.isnan(percentile_ns(np.zeros(SLOTS, dtype=np.int64), 0.5))


def test_shape_is_kept() -> None:
    slots = np.ones((3, SLOTS), dtype=np.int64)
    assert percentile_ns(slots, 0.5).shape == (3,)


def test_quantile_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5"):
        percentile_ns(np.ones(SLOTS, dtype=np.int64), 1.5)
