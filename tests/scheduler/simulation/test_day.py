"""A generated day: the same for every policy, and load- and interference-aware placement earns what it claims."""

import math

import pytest

from scheduler.simulation.command import day_runs
from scheduler.simulation.day import Day
from scheduler.simulation.policies import DAY_POLICIES, day_policy
from scheduler.simulation.report import day_csv, day_table
from scheduler.simulation.trace import NodeShape
from scheduler.simulation.workloads import (
    DAY_SECONDS,
    PodLife,
    WorkloadShape,
    generate_workloads,
    lives,
    use_millicores,
)

NODES = [NodeShape(f"node-{number}", 32_000, 128 << 30) for number in range(24)]


def test_the_day_follows_from_the_seed_alone() -> None:
    first, second = generate_workloads(NODES, 3), generate_workloads(NODES, 3)
    assert first == second
    assert lives(first, 7200.0, 3) == lives(second, 7200.0, 3)
    assert generate_workloads(NODES, 4) != first
    requested = sum(shape.cpu_millicores * shape.replicas for shape in first) / (32_000 * len(NODES))
    assert 0.7 <= requested < 0.7 + 6000 * 20 / (32_000 * len(NODES))


def test_use_breathes_around_its_mean() -> None:
    shape = WorkloadShape("s", "LS", 2000, 1 << 30, 1, 0.5, 0.4, 0.0, 3600.0)
    life = PodLife("p", shape, 0.0, 1.0, 1.0)
    assert use_millicores(life, 0.0) == pytest.approx(1400)
    assert use_millicores(life, DAY_SECONDS / 2) == pytest.approx(600)
    assert math.isclose(use_millicores(life, DAY_SECONDS / 4), 1000)


def test_policies_differ_as_claimed_on_the_same_day() -> None:
    curves = {curve.policy: curve for curve in day_runs(24, 6.0, 0.7, [1])}
    assert set(curves) == set(DAY_POLICIES)
    assert len({curve.decisions for curve in curves.values()}) == 1
    plain, even, gentle, both = (curves[name] for name in DAY_POLICIES)
    assert even.spread[12:].mean() < plain.spread[12:].mean()
    assert gentle.lost_seconds < 0.8 * plain.lost_seconds
    assert both.lost_seconds < plain.lost_seconds
    assert both.spread[12:].mean() < gentle.spread[12:].mean()
    assert day_table(list(curves.values())).count("\n") == 1 + len(curves)
    assert day_csv(curves.values()).count("\n") == 1 + len(curves) * 72


def test_the_measure_counts_whoever_is_there() -> None:
    workloads = generate_workloads(NODES, 1, requested=0.2)
    births = lives(workloads, 1800.0, 1)
    world = Day(day_policy("request-only"), NODES, workloads)
    curve = world.run(births, 1800.0, policy="request-only", seed=1)
    running = set(world.simulation.placed)
    expected = {life.uid for life in births if life.born_seconds < 1800.0 < life.gone_seconds}
    assert running == expected
    assert curve.turned_away == 0
    assert (curve.load_p95 >= curve.load_p50).all()
