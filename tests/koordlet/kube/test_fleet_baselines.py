"""Profiles of this node's workloads: read when a pod comes, once; hostile ones and a dead server cost nothing."""

from collections.abc import Iterator

import pytest

from api.crds import WORKLOAD_PROFILE
from api.kube.interference import POINTS
from api.kube.workload import workload_named
from cluster import custom
from cluster.twin import Twin
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube.fleet_baselines import FleetBaselines
from tests.waiting import wait_for

PROFILES = custom(WORKLOAD_PROFILE)
WEB = "Deployment/shop/web"


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as made:
        made.serve(PROFILES)
        yield made


def table(*workloads: str) -> PodTable:
    return PodTable([PodFacts(f"shop/p{place}", workload=each) for place, each in enumerate(workloads)], generation=1)


def publish(twin: Twin, path: str, *points: int) -> None:
    workload = workload_named(path)
    assert workload is not None
    usual = {"signal": "turnaround", "loadKind": 1, "octave": 3, "weight": 300.0, "points": list(points)}
    document = {
        "apiVersion": WORKLOAD_PROFILE.api_version,
        "kind": WORKLOAD_PROFILE.kind,
        "metadata": {"name": workload.profile_name, "namespace": workload.namespace},
        "spec": {"workload": {"kind": workload.kind, "name": workload.name}, "container": ""},
    }
    twin.load(PROFILES, [document | {"status": {"usualValues": [usual, usual | {"octave": 10**6}]}}])


def test_a_pod_that_comes_brings_its_workloads_usual_values(twin: Twin) -> None:
    publish(twin, WEB, *range(40, 40 + POINTS))
    pods = [table()]
    with twin.client() as client:
        fleet = FleetBaselines(client, lambda: pods[0], look_seconds=0.02)
        fleet.start()
        try:
            pods[0] = table(WEB, "Job/shop/unknown", "shop/bare", "DaemonSet/../x/y")
            found = wait_for(fleet.take)
            assert [(each.key.workload, each.signal, each.octave) for each in found] == [(WEB, "turnaround", 3)]
            assert sum(found[0].counts) == pytest.approx(300.0)
            assert fleet.take() == []
        finally:
            fleet.close()


def test_a_server_that_is_away_is_asked_again(twin: Twin) -> None:
    publish(twin, WEB, *range(40, 40 + POINTS))
    with twin.client() as client:
        fleet = FleetBaselines(client, lambda: table(WEB), look_seconds=0.02)
        twin.stop()
        fleet.start()
        wait_for(lambda: fleet.failures)
        fleet.close()
    assert fleet.take() == []
