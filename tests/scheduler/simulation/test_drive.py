"""Simulated arrivals and departures: nothing is over capacity, samples add up, every policy runs the same engine."""

import pytest

from scheduler.plugins.deviceshare import DeviceShare
from scheduler.simulation.command import saturation_runs, workload_of
from scheduler.simulation.drive import Simulation, inflated, saturate
from scheduler.simulation.objects import pod_object
from scheduler.simulation.policies import POLICIES, gpu_policy
from scheduler.simulation.report import at, best_policy, final_table, saturation_csv, saturation_table
from scheduler.simulation.trace import MIB, NodeShape, PodShape

GIB = 1024 * MIB
NODES = [NodeShape(f"n{i}", 64000, 256 * GIB, 8 if i % 2 else 2, "A" if i % 2 else "B") for i in range(8)]
PODS = [
    *[PodShape(f"s{i}", 4000, 8 * GIB, 1, 40 + 10 * (i % 4)) for i in range(20)],
    *[PodShape(f"w{i}", 8000, 16 * GIB, 1, 100) for i in range(12)],
    *[PodShape(f"m{i}", 16000, 32 * GIB, 4, 100) for i in range(2)],
    *[PodShape(f"c{i}", 12000, 8 * GIB) for i in range(4)],
]


def test_inflated_brings_every_pod_once_and_then_repeats() -> None:
    asked = sum(pod.total_gpu_percent for pod in PODS)
    exact = list(inflated(PODS, asked, 1))
    longer = list(inflated(PODS, 2 * asked, 1))
    assert sum(pod.total_gpu_percent for pod in exact) == asked
    assert sorted(pod.name for pod in longer[: len(PODS)]) == sorted(pod.name for pod in PODS)
    assert sum(pod.total_gpu_percent for pod in longer) >= 2 * asked
    assert list(inflated(PODS, asked, 1)) == exact
    assert list(inflated(PODS, asked, 2)) != exact


@pytest.mark.parametrize("name", POLICIES)
def test_saturation_stays_within_capacity_and_adds_up(name: str) -> None:
    workload = workload_of(PODS, NODES)
    simulation = Simulation(gpu_policy(name, PODS), NODES)
    curve = saturate(simulation, inflated(PODS, 1.3 * 4000, 3), workload, policy=name, seed=3)
    share = simulation.engine.plugins["DeviceShare"]
    assert isinstance(share, DeviceShare)
    for ledger in share.ledger.nodes.values():
        for kind in ledger.devices:
            for device in ledger.of_kind(kind):
                assert all(amount <= device.total[name] for name, amount in ledger.used(device).items())
    arrived = [point.arrived for point in curve.points]
    assert arrived == sorted(arrived)
    assert curve.last.arrived >= 1.3
    for point in curve.points:
        assert 0 <= point.allocated <= min(1.0, point.arrived) + 1e-9
        assert point.fragmented <= 1 - point.allocated + 1e-9
    on_nodes = sum(
        int(pod.spec.containers[0].resources.requests.get("koordinator.sh/gpu", 0))
        for pod in simulation.placed.values()
    )
    assert on_nodes == round(curve.last.allocated * 4000)
    assert curve.last.turned_away == curve.decisions - len(simulation.placed)


def test_departure_frees_what_the_pod_held() -> None:
    simulation = Simulation(gpu_policy("packing", PODS), NODES[:1])
    whole = PodShape("x", 1000, GIB, 2, 100)
    assert simulation.arrive(pod_object(whole, "a"), 0.0) == "n0"
    assert simulation.arrive(pod_object(whole, "b"), 1.0) == ""
    simulation.depart("a", 2.0)
    assert simulation.arrive(pod_object(whole, "c"), 3.0) == "n0"


def test_pods_that_need_a_model_go_to_it() -> None:
    simulation = Simulation(gpu_policy("gradient", PODS), NODES)
    for number in range(4):
        node = simulation.arrive(pod_object(PodShape("x", 1000, GIB, 1, 50, ("B",)), f"p{number}"), 0.0)
        assert NODES[int(node[1:])].model == "B"


def test_gradient_learns_from_arrivals() -> None:
    (curve,) = saturation_runs(NODES, PODS, ["gradient"], [0], until=1.0, learn=True)
    assert curve.last.allocated > 0.7


def test_reports_hold_every_run() -> None:
    curves = saturation_runs(NODES, PODS, ["spreading", "gradient"], [0, 1], until=1.2)
    assert len(curves) == 4
    table = final_table(curves)
    assert "| spreading |" in table
    assert "| gradient |" in table
    assert saturation_table(curves, [0.5, 1.0]).count("\n") == 3
    assert saturation_csv(curves).count("\n") == 1 + sum(len(curve.points) for curve in curves)
    assert best_policy(curves) in ("spreading", "gradient")
    assert at(curves[0], 0.5).arrived >= 0.5
    assert at(curves[0], 99.0) == curves[0].last
