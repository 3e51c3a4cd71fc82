"""Upstream's strategies by their names and arguments: one case that moves, and those that do not."""

from typing import Any

import pytest

from controllers.descheduler.configuration import plugin_types
from tests.descheduling import a_cluster, a_node, a_plugin, a_pod, a_workload, moved, ran

TYPES = plugin_types()
WORKLOAD = {"workloads": [a_workload(replicas=50)]}


def names(plugin: str, nodes: Any, pods: Any, **args: Any) -> list[str]:
    return sorted(moved(ran(a_plugin(TYPES[plugin], **args), a_cluster(nodes, pods, **WORKLOAD))))


def affinity(kind: str, terms: Any) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def on_labels(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def test_all_names_of_upstream_and_koordinator_are_there() -> None:
    assert {
        "CustomPriority",
        "FragmentationAware",
        "HighNodeUtilization",
        "LowNodeLoad",
        "LowNodeUtilization",
        "PodLifeTime",
        "RemoveDuplicates",
        "RemoveFailedPods",
        "RemovePodsHavingTooManyRestarts",
        "RemovePodsViolatingInterPodAntiAffinity",
        "RemovePodsViolatingNodeAffinity",
        "RemovePodsViolatingNodeTaints",
        "RemovePodsViolatingTopologySpreadConstraint",
        "ScaleDownBinPack",
    } <= TYPES.keys()


def test_node_affinity() -> None:
    nodes = [a_node("a", labels={"disk": "hdd"}), a_node("b", labels={"disk": "ssd"})]
    wants = affinity("nodeAffinity", {"nodeSelectorTerms": [on_labels("disk", "ssd")]})
    lost = affinity("nodeAffinity", {"nodeSelectorTerms": [on_labels("disk", "tape")]})
    pods = [a_pod("wrong", "a", spec=wants), a_pod("right", "b", spec=wants), a_pod("nowhere", "a", spec=lost)]
    assert names("RemovePodsViolatingNodeAffinity", nodes, pods) == ["wrong"]
    assert names("RemovePodsViolatingNodeAffinity", nodes, pods, nodeFit=False) == ["nowhere", "wrong"]


def test_preferred_node_affinity() -> None:
    nodes = [a_node("a", labels={"disk": "hdd"}), a_node("b", labels={"disk": "ssd"})]
    term = {"weight": 10, "preference": on_labels("disk", "ssd")}
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
    kinds = ["preferredDuringSchedulingIgnoredDuringExecution"]
    pods = [a_pod("wrong", "a", spec=spec), a_pod("right", "b", spec=spec)]
    assert names("RemovePodsViolatingNodeAffinity", nodes, pods, nodeAffinityType=kinds) == ["wrong"]


def test_node_taints() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [a_node("a", spec={"taints": [taint]}), a_node("b")]
    tolerates = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    pods = [a_pod("against", "a"), a_pod("tolerates", "a", spec=tolerates), a_pod("elsewhere", "b")]
    assert names("RemovePodsViolatingNodeTaints", nodes, pods) == ["against"]
    assert not names("RemovePodsViolatingNodeTaints", nodes, pods, excludedTaints=["gpu=yes"])
    assert not names("RemovePodsViolatingNodeTaints", nodes, pods, includedTaints=["other"])


def test_anti_affinity_moves_one_of_two() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    spec = affinity("podAntiAffinity", [term])
    pods = [a_pod(name, "a", labels={"app": "x"}, spec=spec) for name in ("p", "q")]
    assert len(names("RemovePodsViolatingInterPodAntiAffinity", [a_node("a"), a_node("b")], pods)) == 1
    apart = [a_pod("p", "a", labels={"app": "x"}, spec=spec), a_pod("q", "b", labels={"app": "x"}, spec=spec)]
    assert not names("RemovePodsViolatingInterPodAntiAffinity", [a_node("a"), a_node("b")], apart)


def test_topology_spread_moves_down_to_the_skew() -> None:
    nodes = [a_node("a", labels={"zone": "1"}), a_node("b", labels={"zone": "2"})]
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    pods = [a_pod(f"p{number}", "a", labels={"app": "x"}, spec=spec) for number in range(4)]
    assert len(names("RemovePodsViolatingTopologySpreadConstraint", nodes, pods)) == 2
    soft = {"topologySpreadConstraints": [{**constraint, "whenUnsatisfiable": "ScheduleAnyway"}]}
    pods = [a_pod(f"p{number}", "a", labels={"app": "x"}, spec=soft) for number in range(4)]
    assert not names("RemovePodsViolatingTopologySpreadConstraint", nodes, pods)


def test_duplicates_spread_to_the_mean() -> None:
    pods = [a_pod(f"p{number}", "a") for number in range(4)]
    assert len(names("RemoveDuplicates", [a_node("a"), a_node("b")], pods)) == 2
    assert not names("RemoveDuplicates", [a_node("a"), a_node("b")], pods, excludeOwnerKinds=["ReplicaSet"])


def restarted(count: object, state: object = None) -> dict[str, Any]:
    return {"containerStatuses": [{"restartCount": count, "state": state or {}}]}


def test_restarts() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    pods = [a_pod("often", status=restarted(10, waiting)), a_pod("seldom", status=restarted(9))]
    given = {"podRestartThreshold": 10}
    assert names("RemovePodsHavingTooManyRestarts", [a_node("a"), a_node("b")], pods, **given) == ["often"]
    given = {"podRestartThreshold": 1, "states": ["CrashLoopBackOff"]}  # type: ignore[dict-item]
    assert names("RemovePodsHavingTooManyRestarts", [a_node("a"), a_node("b")], pods, **given) == ["often"]


def test_life_time() -> None:
    pods = [a_pod("old", age_seconds=101), a_pod("new", age_seconds=99)]
    nodes = [a_node("a"), a_node("b")]
    assert names("PodLifeTime", nodes, pods, maxPodLifeTimeSeconds=100) == ["old"]
    assert not names("PodLifeTime", nodes, pods, maxPodLifeTimeSeconds=100, states=["Pending"])


def test_failed_pods() -> None:
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    pods = [a_pod("killed", phase="Failed", status={"phase": "Failed", **restarted(0, state)}), a_pod("runs")]
    nodes = [a_node("a"), a_node("b")]
    assert names("RemoveFailedPods", nodes, pods) == ["killed"]
    assert names("RemoveFailedPods", nodes, pods, reasons=["OOMKilled"], exitCodes=[137]) == ["killed"]
    assert not names("RemoveFailedPods", nodes, pods, reasons=["Evicted"])
    assert not names("RemoveFailedPods", nodes, pods, minPodLifetimeSeconds=7200)


def test_low_utilization_moves_from_full_to_empty_nodes() -> None:
    pods = [a_pod(f"p{number}", "a", cpu=2) for number in range(4)]
    given = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    assert len(names("LowNodeUtilization", [a_node("a"), a_node("b")], pods, **given)) == 2
    assert not names("LowNodeUtilization", [a_node("a"), a_node("b")], pods, **given, numberOfNodes=1)


def test_high_utilization_empties_nodes() -> None:
    pods = [a_pod("few", "a", cpu=1), *(a_pod(f"p{number}", "b", cpu=2) for number in range(3))]
    assert names("HighNodeUtilization", [a_node("a"), a_node("b")], pods, thresholds={"cpu": 20}) == ["few"]
    full = [a_pod("few", "a", cpu=1), *(a_pod(f"p{number}", "b", cpu=5) for number in range(2))]
    assert not names("HighNodeUtilization", [a_node("a"), a_node("b")], full, thresholds={"cpu": 20})


def test_fragmentation_moves_the_pod_that_makes_shares_alike() -> None:
    # Koordinator's example: shares 0.9 and 0.3; without 0.3 of the cpu the deviation falls from 0.3 to 0.15.
    pods = [a_pod("cpu", "a", cpu=3, memory=0), *(a_pod(f"p{number}", "a", cpu=3, memory="15G") for number in (1, 2))]
    session = ran(a_plugin(TYPES["FragmentationAware"]), a_cluster([a_node("a"), a_node("b")], pods, **WORKLOAD))
    assert moved(session) == ["cpu"]
    assert session.wanted[0].reason == "shares of a differ by 0.30, without it by 0.15"


@pytest.mark.parametrize("plugin", sorted(TYPES), ids=str)
def test_an_empty_cluster_is_nothing_to_do(plugin: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "PodLifeTime": {"maxPodLifeTimeSeconds": 1},
        "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 1},
        "HighNodeUtilization": {"thresholds": {"cpu": 20}},
        "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        "CustomPriority": {"evictionOrder": [{"name": name, "nodeSelector": {}} for name in "ab"]},
    }
    assert not moved(ran(a_plugin(TYPES[plugin], **needed.get(plugin, {})), a_cluster()))
