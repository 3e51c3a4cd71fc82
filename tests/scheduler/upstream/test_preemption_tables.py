"""The stock scheduler's tables of preemption, row by row: candidates, the choice among them, and who may preempt."""

from typing import Any

import msgspec
import numpy as np
import pytest

from api.kube.objects import Pod, PodDisruptionBudget
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, Attempt, Bits, ObjectEvent, Plugin, Reason
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.preemption import BUDGETS, least_harmful
from tests.schedobjects import engine, node, pod
from tests.scheduler.upstream.reading import table

TABLES = table("preemption")
SIZES = {"s": 100, "m": 200, "l": 300, "x": 500}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Named(Plugin[str]):
    """Passes all rows, none, or the one of the pod's name."""

    name = "Named"
    rank = 100
    passes = ""

    def prepare(self, info: Any) -> str:
        return str(info.pod.metadata.name)

    def reasons(self, spec: str) -> tuple[Reason, ...]:
        return (Reason("not this one"),)

    def filter(self, attempt: Attempt, spec: str, rows: Any) -> Bits:
        names = np.array(attempt.snapshot.names[: attempt.snapshot.rows_used])[rows]
        barred = {"true": np.zeros(names.shape), "false": np.ones(names.shape), "match": names != spec}[self.passes]
        return barred.astype(np.int64)


class PassesAll(Named):
    passes = "true"


class PassesNone(Named):
    passes = "false"


class PassesItsName(Named):
    passes = "match"


FILTERS = {"true": PassesAll, "false": PassesNone, "match": PassesItsName}


def made_pod(case: dict[str, Any]) -> Pod:
    fields: dict[str, Any] = {"labels": case.get("labels", {}), "priority": case.get("priority", 0)}
    amount = SIZES.get(case.get("asks", ""))
    requests = {"cpu": f"{amount}m", "memory": str(amount)} if amount else {}
    if "apart" in case:
        label, topology = case["apart"]
        exists = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
        term = {"topologyKey": topology, "labelSelector": exists}
        fields["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    if "spread" in case:
        exists = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
        fields["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": exists}
            for key in case["spread"]
        ]
    status: dict[str, Any] = {}
    if "start" in case:
        status["startTime"] = f"1970-01-01T00:00:0{case['start']}Z"
    if case.get("by_preemption"):
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    if "nominated" in case:
        status["nominatedNodeName"] = case["nominated"]
    if case.get("leaving"):
        fields["deletion_timestamp"] = "2026-01-01T00:00:00Z"
    if "policy" in case:
        fields["preemptionPolicy"] = case["policy"]
    return pod(case["name"], requests, nodeName=case.get("node", ""), status=status, **fields)


def made_engine(case: dict[str, Any], nodes: list[str]) -> Engine:
    first = {"named": FILTERS[case["filter"]]} if "filter" in case else {"fit": NodeResourcesFit}
    others = {"affinity": InterPodAffinity, "spread": PodTopologySpread, "preemption": DefaultPreemption}
    percent, least = case.get("at_least", (10, 100))
    limits = {"min_candidate_nodes_percentage": percent, "min_candidate_nodes_absolute": least}
    size = {"cpu": "500m", "memory": "500"}
    listed = []
    for name in nodes:
        plain, _, zone = name.partition("/")
        listed.append(node(plain, allocatable=size, labels={"hostname": plain} | ({"zone": zone} if zone else {})))
    made = engine(listed, map(made_pod, case["placed"]), kinds={**first, **others}, plugins={"preemption": limits})
    for index, budget in enumerate(case.get("budgets", ())):
        disrupted = dict.fromkeys(budget.get("disrupted", ()), "2026-01-01T00:00:00Z")
        document = {
            "metadata": {"name": f"b{index}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": budget["labels"]}},
            "status": {"disruptionsAllowed": budget["allowed"], "disruptedPods": disrupted},
        }
        key = Key("default", f"b{index}")
        made.on_object(ObjectEvent(BUDGETS, Action.ADD, key, None, msgspec.convert(document, PodDisruptionBudget)), 0.0)
    return made


@pytest.mark.parametrize("row", range(len(TABLES["dry_run"])))
def test_candidates(row: int) -> None:
    case = TABLES["dry_run"][row]
    made = made_engine(case, case["nodes"])
    plugin = made.plugins["DefaultPreemption"]
    assert isinstance(plugin, DefaultPreemption)
    for cycle, asking in enumerate(case["asking"]):
        if "offset" in case:
            plugin.start_at(case["offset"][cycle])
        attempt = made.cycle.attempt(made.classes.info(made_pod(asking)), 0.0)
        found = plugin.candidates(attempt, made.cycle.evaluate(attempt).failure)
        names = made.snapshot.names
        assert {
            names[each.row]: [sorted(victim.pod.metadata.name for victim in each.victims), each.violations]
            for each in found
        } == case["candidates"][cycle]


@pytest.mark.parametrize("row", range(len(TABLES["chosen"])))
def test_the_choice_among_candidates(row: int) -> None:
    case = TABLES["chosen"][row]
    made = made_engine(case, case["nodes"])
    plugin = made.plugins["DefaultPreemption"]
    assert isinstance(plugin, DefaultPreemption)
    attempt = made.cycle.attempt(made.classes.info(made_pod(case["asking"])), 0.0)
    found = plugin.candidates(attempt, made.cycle.evaluate(attempt).failure)
    assert made.snapshot.names[least_harmful(found).row] in case["chosen"]


@pytest.mark.parametrize("row", range(len(TABLES["may_preempt"])))
def test_who_may_preempt(row: int) -> None:
    case = TABLES["may_preempt"][row]
    nodes = ["node1"]
    made = made_engine({**case, "filter": "false"}, nodes)
    if case["hopeless"]:
        made.on_node(Action.UPDATE, node("node1", unschedulable=True), 0.0)
    made.on_pod(Action.ADD, made_pod(case["asking"]), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert ("not eligible" not in outcome.message) is case["may"]
