"""What larger requests and limits would have changed."""

import numpy as np
import pytest

from controllers.recommend.losses import DAY_SECONDS, curable_wait, losses


@pytest.mark.parametrize(
    ("cores", "wait", "request_", "target", "expected"),
    [
        (0.2, 0.1, 0.0, 0.5, 0.1),
        (0.2, 0.1, 0.5, 1.0, 0.0),
        (0.2, 0.6, 0.3, 0.5, 0.2),
        (0.8, 0.4, 0.0, 0.5, 0.0),
        (0.2, 0.1, 0.5, 0.3, 0.0),
    ],
    ids=["all of it", "entitled already", "part of it", "beyond the request", "a smaller request"],
)
def test_what_a_request_cures(cores: float, wait: float, request_: float, target: float, expected: float) -> None:
    found = curable_wait(*(np.array([value]) for value in (cores, wait, request_, target)))
    assert found[0] == pytest.approx(expected)


def test_the_limit_at_which_throttling_ends() -> None:
    count = 1000
    aggregates = np.append(np.zeros(count, np.intp), np.ones(count, np.intp))
    cores = np.append(np.full(count, 0.5), np.full(count, 0.3))
    throttled = np.append(np.full(count, 0.7), np.zeros(count))
    wait = np.full(2 * count, np.nan)
    at = np.tile(np.arange(count) * 60.0, 2)
    found = losses(
        aggregates, at, (cores, wait, throttled), requests=np.array([np.nan, 0.3]), targets=np.array([0.6, 0.4])
    )
    assert 1200 <= found.unthrottled_millicores[0] <= 1200 * 1.06
    assert np.isnan(found.unthrottled_millicores[1])
    assert found.throttled[0] == pytest.approx(0.7 * DAY_SECONDS)
    assert found.waited.tolist() == [0.0, 0.0]
    assert found.curable.tolist() == [0.0, 0.0]
