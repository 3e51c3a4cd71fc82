"""Reaction time: the parts of it, as the agent's log tells them."""

import pytest

from bench.reaction import Parts, parts

IGNORED = "DEBUG trip: cgroup 7 lost 7.6 ms of 9.0 ms to cgroup 9; ignored, 0.4 ms after the kernel saw it\n"
ACTED = "DEBUG trip: cgroup 7 lost 8.1 ms of 12.0 ms to cgroup 9; acted, 2.5 ms after the kernel saw it\n"
LATER = "DEBUG trip: cgroup 7 lost 7.9 ms of 40.0 ms to cgroup 9; acted, 1.0 ms after the kernel saw it\n"


@pytest.mark.parametrize(
    ("log", "reached", "found"),
    [
        pytest.param(IGNORED + ACTED + LATER, 0.025, Parts(0.0105, 0.012, 0.0025), id="the-first-that-acted"),
        pytest.param(ACTED, 0.014, Parts(0.0, 0.012, 0.0025), id="seen-before-its-end"),
        pytest.param(IGNORED, 0.025, None, id="by-a-tick"),
    ],
)
def test_parts_of_the_time_to_the_first_rung(log: str, reached: float, found: Parts | None) -> None:
    made = parts(log, reached)
    if found is None or made is None:
        assert made is found
    else:
        assert (made.unharmed, made.losing, made.answering) == pytest.approx(
            (found.unharmed, found.losing, found.answering)
        )
