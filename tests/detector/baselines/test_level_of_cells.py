"""Levels of cells: begun by what was learned, and moved by what may teach."""

import numpy as np
import pytest

from detector.baselines.file import decode, encode
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselineSample, WorkloadKey

BEGIN = 1e9
KEY = WorkloadKey("w")


def replicas(*values: float) -> BaselineSample:
    count = len(values)
    return BaselineSample((KEY,) * count, np.ones(count), np.zeros(count, np.int64), {"cpi": np.array(values)})


def taught(baselines: Baselines, now: float, *values: float, excluded: tuple[bool, ...] | None = None) -> int:
    """Return whether a tick was learned."""
    before = int(baselines.cells.samples[:1].sum())
    baselines.learn(replicas(*values), now, None if excluded is None else np.array(excluded))
    return int(baselines.cells.samples[0]) > before


@pytest.mark.parametrize("first", [0.0, 1e-4, 1e3])
def test_a_first_tick_of_another_level_is_forgotten_when_the_cell_may_judge(first: float) -> None:
    """The recent level crawls from the first value by an octave a minute."""
    draw, baselines = np.random.default_rng(1), Baselines()
    baselines.learn(replicas(first), BEGIN)
    learned = [taught(baselines, BEGIN + second, 0.01 * draw.lognormal(0, 0.05)) for second in range(2, 1800, 2)]
    assert all(learned)
    assert 2 ** baselines.cells.levels.columns["ordinary"][0] == pytest.approx(0.01, rel=0.1)


def test_what_an_excluded_replica_shows_does_not_move_the_level_of_its_cell() -> None:
    """Two replicas of one workload, one of them slowed eightfold by a neighbour for three hours."""
    draw, baselines = np.random.default_rng(2), Baselines()
    now = BEGIN

    def run(seconds: int, slower: float, *, excluded: bool) -> list[int]:
        nonlocal now
        found = []
        for _ in range(seconds // 6):
            now += 6
            noise = draw.lognormal(0, 0.05, 2)
            found.append(taught(baselines, now, noise[0], slower * noise[1], excluded=(False, excluded)))
        return found

    run(3600, 1.0, excluded=False)
    assert all(run(3 * 3600, 8.0, excluded=True)), "the other replica goes on teaching"
    assert baselines.cells.levels.columns["ordinary"][0] == pytest.approx(0.0, abs=0.1)
    assert all(run(1200, 1.0, excluded=False))
    weight = baselines.cells.mass[0] / baselines.cells.weight_at(now)
    assert weight > 0.9 * (3600 + 3 * 3600 + 1200) / 6, "nothing was dropped"


def test_a_workload_of_which_all_replicas_are_excluded_is_still_looked_at() -> None:
    baselines = Baselines()
    for second in range(300):
        baselines.learn(replicas(1.0, 1.0), BEGIN + second)
    for second in range(300, 900):
        assert not taught(baselines, BEGIN + second, 8.0, 8.0, excluded=(True, True))
    assert baselines.cells.levels.columns["recent"][0] == pytest.approx(3.0, abs=0.1)


def test_a_service_that_wanders_is_judged_by_how_far_it_wanders() -> None:
    """Two hours of a level that goes up and down by a factor of 1.6; what it has shown so far is a part of its reach.

    A file keeps it: a restarted agent does not learn it anew.
    """
    draw, baselines, at = np.random.default_rng(9), Baselines(), 0.0
    values = []
    for second in range(7200):
        at = 0.999 * at + draw.normal(0, 0.02)
        values.append(0.01 * np.exp(at))
        baselines.learn(replicas(values[-1]), BEGIN + second)
    now = BEGIN + 7200.0
    ordinary = 2 ** baselines.cells.levels.columns["ordinary"][0]
    upper = baselines.judge(replicas(0.01), now)["cpi"].upper[0]
    assert 2.2 * ordinary < upper < 3.0 * ordinary
    restarted = decode(encode(baselines, now), now)
    assert restarted.judge(replicas(0.01), now)["cpi"].upper[0] == pytest.approx(upper, rel=0.01)
