"""A thread that repeats a step: through failures, until it is stopped."""

from random import Random

import pytest

from cluster import Backoff, ClusterError, Repeating
from tests.waiting import wait_for

SOON = Backoff(initial_seconds=0.001, maximum_seconds=0.002)


@pytest.mark.parametrize("error", [ClusterError("away"), OSError("gone")], ids=["cluster", "file"])
def test_failures_are_counted_and_the_step_goes_on(error: Exception) -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(len(calls))
        if len(calls) < 4:
            raise error

    repeating = Repeating("test", step, 0.001, SOON, random=Random(1))
    repeating.start()
    wait_for(lambda: len(calls) > 6)
    repeating.stop()
    count = len(calls)
    assert repeating.failures == 3
    repeating.stop()
    assert len(calls) == count


def test_stop_before_start() -> None:
    Repeating("test", lambda: None, 1.0, SOON).stop()
