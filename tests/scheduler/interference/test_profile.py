"""Traits from profiles: containers summed, node types preferred, loads weighed."""

from typing import Any

import msgspec
import numpy as np
import pytest

from api.crds import ResourceInterference, WorkloadProfile
from api.kube.interference import RESOURCES
from api.kube.workload import Workload, workload_of
from scheduler.interference.profile import NEUTRAL, Profiles, typical_sensitivity
from tests.schedobjects import pod

WEB = Workload("default", "Deployment", "web")


def profile(name: str, *, container: str = "main", node_type: str = "", samples: int = 10, **cpu: float) -> Any:
    bins = [{"loadFrom": 0, "loadTo": 1, "lostSecondsPerPressure": cpu.get("lost", 0.0)}]
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workload": {"kind": "Deployment", "name": "web"}, "container": container, "nodeType": node_type},
        "status": {
            "samples": samples,
            "resources": [{"name": "cpu", "sensitivity": bins, "aggressiveness": cpu.get("push", 0.0)}],
        },
    }
    return msgspec.convert(document, WorkloadProfile)


def cpu_of(profiles: Profiles, node_type: str = "") -> tuple[int, int]:
    traits = profiles.traits(WEB, node_type)
    return int(traits.sensitivity[0]), int(traits.aggressiveness[0])


def test_containers_add_up_and_their_node_type_goes_first() -> None:
    profiles = Profiles()
    assert profiles.traits(WEB, "") is NEUTRAL
    profiles.put(profile("main", lost=0.5, push=0.25))
    profiles.put(profile("side", container="side", lost=0.1, push=0.05))
    profiles.put(profile("main-big", node_type="big", lost=0.2, push=0.1))
    assert cpu_of(profiles) == (600_000, 300_000)
    assert cpu_of(profiles, "big") == (300_000, 150_000)
    assert cpu_of(profiles, "small") == (600_000, 300_000)
    assert profiles.node_types(WEB) == {"big"}
    profiles.drop(profile("main-big", node_type="big"))
    assert cpu_of(profiles, "big") == (600_000, 300_000)


def test_thin_profiles_are_not_believed() -> None:
    profiles = Profiles(minimum_samples=20)
    profiles.put(profile("main", lost=0.5, samples=19))
    assert cpu_of(profiles) == (0, 0)
    profiles.put(profile("main", lost=0.5, samples=20))
    assert cpu_of(profiles) == (500_000, 0)


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([(0.2, 1), (0.8, 3)], 0.65, id="weighed by samples"),
        pytest.param([(0.2, 0), (0.8, 0)], 0.5, id="never counted"),
        pytest.param([(-0.3, 5)], 0.0, id="no pod gains from pressure"),
    ],
)
def test_typical_sensitivity(bins: list[tuple[float, int]], expected: float) -> None:
    wire = [{"loadFrom": 0, "loadTo": 1, "lostSecondsPerPressure": lost, "samples": samples} for lost, samples in bins]
    resource = msgspec.convert({"name": "cpu", "sensitivity": wire}, ResourceInterference)
    assert typical_sensitivity(resource) == pytest.approx(expected)


def test_the_workload_is_what_a_human_would_name() -> None:
    replica_set = {"kind": "ReplicaSet", "name": "web-7f9", "uid": "r"}
    assert workload_of(pod("p", owner=replica_set, labels={"pod-template-hash": "7f9"})) == WEB
    assert workload_of(pod("p", owner=replica_set)) == Workload("default", "ReplicaSet", "web-7f9")
    assert workload_of(pod("p")) is None


def test_every_resource_of_the_schema_has_a_place() -> None:
    profiles = Profiles()
    made = profile("all")
    resources = [msgspec.convert({"name": name, "aggressiveness": 1}, ResourceInterference) for name in RESOURCES]
    status = msgspec.structs.replace(made.status, resources=resources)
    profiles.put(msgspec.structs.replace(made, status=status))
    assert np.all(profiles.traits(WEB, "").aggressiveness == 1_000_000)
