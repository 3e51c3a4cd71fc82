"""The stock scheduler's own tables, row by row: each passes, or says why it differs."""

from typing import Any

import pytest

from scheduler.explain.diagnosis import by_node
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.tainttoleration import TaintToleration
from tests.schedobjects import engine, node, pod, rejected, totals
from tests.scheduler.upstream.reading import table

EFFECTS = {"NS": "NoSchedule", "PNS": "PreferNoSchedule", "": ""}
NAMES = ("cpu", "memory", "example.com/aaa", "example.com/bbb")


TAINTS, FIT, SPREAD, AFFINITY = table("taints"), table("fit"), table("spread"), table("affinity")
LABELS = {"": {}, "S": {"service": "securityscan"}, "P": {"security": "S1"}}


def taints(rows: list[list[str]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value, "effect": EFFECTS[effect]} for key, value, effect in rows]


def tolerations(rows: list[list[str]]) -> list[dict[str, str]]:
    return [
        {"key": key, **({"operator": operator} if operator else {}), "value": value, "effect": EFFECTS[effect]}
        for key, operator, value, effect in rows
    ]


@pytest.mark.parametrize("row", range(len(TAINTS["filter"])))
def test_taints_filter(row: int) -> None:
    case = TAINTS["filter"][row]
    made = engine([node("n0", taints=taints(case["taints"]))], kinds={"taints": TaintToleration})
    reasons = rejected(made, pod("p", tolerations=tolerations(case["tolerations"])))["n0"]
    assert (not reasons) is (case["fits"] and "differs" not in case), reasons


@pytest.mark.parametrize("row", range(len(TAINTS["score"])))
def test_taints_score(row: int) -> None:
    case = TAINTS["score"][row]
    nodes = [node(f"n{index}", taints=taints(each)) for index, each in enumerate(case["nodes"])]
    made = engine(nodes, kinds={"taints": TaintToleration}, plugins={"taints": {"weight": 1}})
    scores = totals(made, pod("p", tolerations=tolerations(case["tolerations"])))
    assert [scores[f"n{index}"] for index in range(len(nodes))] == case["scores"]


def amounts(numbers: list[int]) -> dict[str, str]:
    return {
        name: f"{number}m" if name == "cpu" else str(number)
        for name, number in zip(NAMES, numbers, strict=False)
        if number
    }


def containers(rows: list[list[int]]) -> list[dict[str, Any]]:
    return [{"name": f"c{index}", "resources": {"requests": amounts(each)}} for index, each in enumerate(rows)]


@pytest.mark.parametrize("row", range(len(FIT)))
def test_fit(row: int) -> None:
    case = FIT[row]
    allocatable = {"cpu": "10m", "memory": "20", "pods": "32", "example.com/aaa": "5", "ephemeral-storage": "20"}
    used = pod("used", containers=containers([case["used"]]), nodeName="n0")
    made = engine([node("n0", allocatable=allocatable)], [used], kinds={"fit": NodeResourcesFit})
    asking = pod("p", containers=containers(case["pod"]), initContainers=containers(case.get("init", [])))
    assert sorted(rejected(made, asking)["n0"]) == sorted(f"Insufficient {name}" for name in case["lacks"])


@pytest.mark.parametrize("row", range(len(SPREAD)))
def test_spread(row: int) -> None:
    case = SPREAD[row]
    zones = {"a": "zone1", "b": "zone1", "x": "zone2", "y": "zone2"}
    nodes = [
        node(name, labels={"node": name} | ({} if name in case.get("without", ()) else {"zone": zone}))
        for name, zone in zones.items()
    ]
    placed = [
        pod(f"{where}-{name}-{index}", nodeName=name, namespace=where, labels={"foo": ""})
        for where, counts in (("default", case["placed"]), ("other", case.get("elsewhere", {})))
        for name, count in counts.items()
        for index in range(count)
    ]
    constraint: dict[str, Any] = {
        "maxSkew": case["skew"],
        "topologyKey": case["key"],
        "whenUnsatisfiable": "DoNotSchedule",
    }
    if case.get("selector") != "none":
        constraint["labelSelector"] = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
    fields: dict[str, Any] = {}
    if "affinity" in case:
        rule = {"key": "node", "operator": "In", "values": case["affinity"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        fields["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    made = engine(nodes, placed, kinds={"spread": PodTopologySpread})
    labels = {"foo": ""} if case.get("own", True) else {"bar": ""}
    asking = pod("p", labels=labels, topologySpreadConstraints=[constraint], **fields)
    attempt = made.cycle.attempt(made.classes.info(asking), 0.0)
    answers = {each.node: each.reasons for each in by_node(made.cycle.evaluate(attempt).failure, made.snapshot)}
    assert [name for name, reasons in answers.items() if not reasons] == case["fits"]
    never = [name for name, reasons in answers.items() if any(not each.resolvable for each in reasons)]
    assert never == case.get("never", [])


def terms(rows: list[Any], namespaces: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "topologyKey": topology,
            "labelSelector": {
                "matchExpressions": [
                    {"key": key, "operator": operator, "values": values} for key, operator, values in requirements
                ]
            },
            **({"namespaces": namespaces} if namespaces else {}),
        }
        for topology, *requirements in rows
    ]


def affinity(near: list[Any], away: list[Any], namespaces: list[str]) -> dict[str, Any]:
    kinds = {"podAffinity": near, "podAntiAffinity": away}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {kind: {required: terms(rows, namespaces)} for kind, rows in kinds.items() if rows}


@pytest.mark.parametrize("row", range(len(AFFINITY)))
def test_affinity(row: int) -> None:
    case = AFFINITY[row]
    placed = []
    if "placed" in case:
        apart = affinity([], case.get("placed_away", []), [])
        where = case.get("placed_on", "n0")
        placed = [pod("placed", labels=LABELS[case["placed"]], nodeName=where, affinity=apart)]
    made = engine([node("n0", labels={"region": "r1", "zone": "z11"})], placed, kinds={"affinity": InterPodAffinity})
    rules = affinity(case.get("near", []), case.get("away", []), case.get("namespaces", []))
    asking = pod("p", labels=LABELS[case["own"]], affinity=rules)
    attempt = made.cycle.attempt(made.classes.info(asking), 0.0)
    (answer,) = by_node(made.cycle.evaluate(attempt).failure, made.snapshot)
    assert (not answer.reasons) is case["fits"], answer.reasons
    assert any(not each.resolvable for each in answer.reasons) is case.get("never", False)
