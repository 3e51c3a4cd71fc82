"""Fields of pods that change where they may go: resource claims, resizes in place, labels of placed pods, gates."""

from typing import Any

import msgspec
import pytest

from api.kube.numa import NodeResourceTopology
from api.kube.objects import Namespace
from cluster.resources import NAMESPACES, Key, Patch
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.numa.hints import NumaPolicy
from scheduler.numa.request import node_numa_policy
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.dynamicresources import DynamicResources
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.schedulinggates import SchedulingGates
from tests.schedobjects import drain, engine, node, pod, rejected, totals

FIT = {"fit": NodeResourcesFit}


def test_a_pod_waits_for_its_resource_claim() -> None:
    made = engine([node("n0")], kinds={"claims": DynamicResources})
    made.on_pod(Action.ADD, pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert 'resourceclaim "c" not found' in outcome.message
    made.on_pod(Action.ADD, pod("q"), 0.0)
    assert drain(made) == {"q": "n0"}


def running(spec: str, **status: Any) -> Any:
    return pod("old", {"cpu": spec}, nodeName="n0", status={"containerStatuses": [{"name": "main", **status}]})


@pytest.mark.parametrize(
    ("status", "held"),
    [
        pytest.param({}, 1000, id="no-status"),
        pytest.param({"allocatedResources": {"cpu": "4"}}, 4000, id="allocated"),
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, 3000, id="not-carried-out"),
        pytest.param({"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}, 1000, id="done"),
        pytest.param({"allocatedResources": {"cpu": "x" * 99}}, 1000, id="unreadable"),
    ],
)
def test_a_resize_in_place_counts_until_it_is_carried_out(status: dict[str, Any], held: int) -> None:
    made = engine([node("n0")], [running("1", **status)], kinds=FIT)
    assert made.snapshot.requested[0, 0] == held


def test_a_resize_that_is_carried_out_makes_room() -> None:
    made = engine([node("n0")], [running("1", resources={"requests": {"cpu": "4"}})], kinds=FIT)
    made.on_pod(Action.ADD, pod("p", {"cpu": "2"}), 0.0)
    assert drain(made) == {}
    made.on_pod(Action.UPDATE, running("1", resources={"requests": {"cpu": "1"}}), 5.0)
    assert drain(made, 5.0) == {"p": "n0"}


def affine(kind: str, **term: Any) -> dict[str, Any]:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}


def test_a_label_of_a_placed_pod_places_another() -> None:
    made = engine([node("n0")], [pod("old", nodeName="n0")], kinds={"affinity": InterPodAffinity})
    made.on_pod(Action.ADD, pod("p", affinity=affine("podAffinity")), 0.0)
    assert drain(made) == {}
    made.on_pod(Action.UPDATE, pod("old", nodeName="n0", labels={"app": "web"}), 5.0)
    assert drain(made, 5.0) == {"p": "n0"}


def namespace(made: Engine, name: str, **labels: str) -> None:
    item = msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)
    made.on_object(ObjectEvent(NAMESPACES.of(Namespace), Action.ADD, Key("", name), None, item), 0.0)


def test_anti_affinity_of_placed_pods_covers_namespaces_that_come_later() -> None:
    away = affine("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "a"}})
    made = engine([node("n0")], [pod("old", nodeName="n0", affinity=away)], kinds={"affinity": InterPodAffinity})
    late = pod("p", namespace="late", labels={"app": "web"})
    namespace(made, "late")
    assert rejected(made, late) == {"n0": []}
    namespace(made, "late", team="a")
    assert rejected(made, late) == {"n0": ["node(s) didn't satisfy existing pods anti-affinity rules"]}
    namespace(made, "late", team="b")
    assert rejected(made, late) == {"n0": []}
    made.on_pod(Action.DELETE, pod("old", nodeName="n0", affinity=away), 0.0)
    assert rejected(made, late) == {"n0": []}


def test_gated_members_do_not_count_and_are_told_nothing() -> None:
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    made = engine([node("n0")], kinds={**FIT, "gangs": Coscheduling, "gates": SchedulingGates})
    made.on_pod(Action.ADD, pod("a", {"cpu": "1"}, annotations=keys), 0.0)
    made.on_pod(Action.ADD, pod("b", {"cpu": "1"}, annotations=keys, schedulingGates=[{"name": "kueue"}]), 0.0)
    assert drain(made) == {}
    made.tick(1.0)
    assert "b" not in {write.key.name for write in made.writes}
    made.on_pod(Action.UPDATE, pod("b", {"cpu": "1"}, annotations=keys), 2.0)
    assert set(drain(made, 2.0)) == {"a", "b"}


def test_a_gang_that_does_not_fit_polls_nobody() -> None:
    made = engine([node("n0"), node("n1")], kinds={**FIT, "gangs": Coscheduling})
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    for index in range(3):
        made.on_pod(Action.ADD, pod(f"g{index}", {"cpu": "3"}, annotations=keys), 0.0)
    made.on_pod(Action.ADD, pod("large", {"cpu": "9"}), 0.0)
    for now in range(600):
        made.tick(float(now))
        while made.schedule_one(float(now)) is not None:
            pass
    attempts = {name: queued.attempts for name in ("large", "g0") if (queued := made.queue.get(f"uid-{name}"))}
    assert attempts["large"] <= 3
    assert attempts["g0"] <= 3


def test_what_a_gang_gives_back_is_news_to_pods_that_were_tried_meanwhile() -> None:
    made = engine([node("n0")], kinds={**FIT, "gangs": Coscheduling})
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    made.on_pod(Action.ADD, pod("g0", {"cpu": "3"}, annotations=keys), 0.0)
    made.on_pod(Action.ADD, pod("g1", {"cpu": "3"}, annotations=keys), 0.0)
    made.on_pod(Action.ADD, pod("p", {"cpu": "2"}), 0.0)
    assert drain(made) | drain(made, 2.0) == {"p": "n0"}


def test_a_pod_that_asks_for_nothing_balances_nothing() -> None:
    made = engine([node("n0"), node("n1", allocatable={"cpu": "64"})], kinds={"b": NodeResourcesBalancedAllocation})
    assert totals(made, pod("p")) == {"n0": 0, "n1": 0}


@pytest.mark.parametrize(
    ("label", "reported", "policy"),
    [
        ("", "SingleNUMANodePodLevel", NumaPolicy.SINGLE_NUMA_NODE),
        ("", "SingleNUMANodeContainerLevel", NumaPolicy.SINGLE_NUMA_NODE),
        ("", "RestrictedPodLevel", NumaPolicy.RESTRICTED),
        ("", "BestEffort", NumaPolicy.BEST_EFFORT),
        ("", "None", NumaPolicy.NONE),
        ("", "", NumaPolicy.NONE),
        ("Restricted", "SingleNUMANodePodLevel", NumaPolicy.RESTRICTED),
    ],
)
def test_the_kubelets_numa_policy_counts_where_the_node_has_no_label(
    label: str, reported: str, policy: NumaPolicy
) -> None:
    labels = {"node.koordinator.sh/numa-topology-policy": label} if label else {}
    report = NodeResourceTopology(topology_policies=[reported] if reported else [])
    assert node_numa_policy(node("n0", labels=labels), report) is policy


def test_a_pod_that_is_held_names_the_node_that_it_will_be_bound_to() -> None:
    made = engine([node("n0")], kinds={**FIT, "gangs": Coscheduling})
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    loose = {**keys, "gang.scheduling.koordinator.sh/mode": "NonStrict"}
    for name in ("a", "b"):
        made.on_pod(Action.ADD, pod(name, {"cpu": "3"}, annotations=loose), 0.0)
    assert drain(made) == {}
    made.tick(1.0)
    made.tick(2.0)
    assert nominations(made) == ["n0"]
    made.writes.clear()
    made.tick(700.0)
    assert nominations(made) == [None]


def nominations(made: Engine) -> list[Any]:
    bodies = [write.body.body for write in made.writes if isinstance(write.body, Patch)]
    return [body["status"]["nominatedNodeName"] for body in map(dict, bodies) if "nominatedNodeName" in body["status"]]
