"""Rates and delays, with a clock that the test sets."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import Backoff, TokenBucket


def test_a_burst_goes_at_once_and_the_rest_queues() -> None:
    bucket = TokenBucket(per_second=10, burst=3)
    assert [bucket.reserve(0.0) for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_tokens_come_back_up_to_the_burst() -> None:
    bucket = TokenBucket(per_second=10, burst=2)
    for _ in range(2):
        bucket.reserve(0.0)
    assert not bucket.try_take(0.05)
    assert bucket.try_take(0.1)
    assert [bucket.try_take(100.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    bucket = TokenBucket(per_second=1, burst=5)
    bucket.reserve(100.0)
    assert bucket.reserve(50.0) == 0.0


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_that_never_serves_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="rate limit"):
        TokenBucket(rate, burst)


@given(times=st.lists(st.floats(0, 10), min_size=1, max_size=60).map(sorted))
def test_no_window_sees_more_than_rate_and_burst_allow(times: list[float]) -> None:
    bucket = TokenBucket(per_second=5, burst=4)
    used = [now + bucket.reserve(now) for now in times]
    for start in used:
        assert sum(start <= moment <= start + 1.0 for moment in used) <= 4 + 5 + 1


@pytest.mark.parametrize(("attempt", "expected"), [(0, 0.1), (1, 0.2), (2, 0.4), (6, 6.4), (7, 10.0), (5000, 10.0)])
def test_delays_double_up_to_the_maximum(attempt: int, expected: float) -> None:
    plain = Backoff(jitter=0.0)
    assert plain.delay_seconds(attempt, Random(1)) == pytest.approx(expected)


def test_jitter_only_shortens() -> None:
    random = Random(1)
    delays = {Backoff(jitter=0.5).delay_seconds(3, random) for _ in range(50)}
    assert len(delays) > 40
    assert 0.4 <= min(delays) < max(delays) <= 0.8
