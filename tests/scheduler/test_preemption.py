"""Victims of preemption, with respect to budgets and importance."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import PodDisruptionBudget
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.preemption import BUDGETS
from tests.schedobjects import drain, engine, node, pod

KINDS = {
    "noderesourcesfit": NodeResourcesFit,
    "nodeaffinity": NodeAffinity,
    "defaultpreemption": DefaultPreemption,
}


def placed(name: str, where: str, cpu: str, priority: int, **fields: Any) -> Any:
    start = fields.pop("start", "2026-01-01T00:00:00Z")
    return pod(name, {"cpu": cpu}, nodeName=where, priority=priority, status={"startTime": start}, **fields)


def preempt(made: Engine, candidate: Any) -> AttemptOutcome:
    made.on_pod(Action.ADD, candidate, 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    return outcome


def chosen(outcome: AttemptOutcome) -> list[str]:
    return sorted(info.pod.metadata.name for info in outcome.victims)


def budget(name: str, allowed: int, **labels: str) -> ObjectEvent:
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    made = msgspec.convert(document, PodDisruptionBudget)
    return ObjectEvent(BUDGETS, Action.ADD, Key("default", name), None, made)


@pytest.mark.parametrize(
    ("residents", "victims"),
    [
        pytest.param([("a", "n0", "4", 1), ("b", "n1", "4", 2)], ["a"], id="least-important-top"),
        pytest.param([("a", "n0", "4", 100), ("b", "n1", "4", 100)], [], id="equal-priority-stays"),
        pytest.param([("a", "n0", "2", 5), ("b", "n0", "2", 1), ("c", "n1", "4", 6)], ["a", "b"], id="lower-top-wins"),
        pytest.param([("a", "n0", "2", 5), ("b", "n0", "2", 5), ("c", "n1", "4", 5)], ["c"], id="fewer-of-equal"),
        pytest.param(
            [("a", "n0", "1", 50), ("b", "n0", "3", 1), ("c", "n1", "4", 100)],
            ["a", "b"],
            id="all-that-it-takes",
        ),
    ],
)
def test_the_choice(residents: list[tuple[str, str, str, int]], victims: list[str]) -> None:
    made = engine([node("n0"), node("n1")], [placed(*item) for item in residents], kinds=KINDS)
    assert chosen(preempt(made, pod("p", {"cpu": "4"}, priority=100))) == victims


def test_those_that_need_not_go_are_given_back_most_important_first() -> None:
    residents = [placed("a", "n0", "2", 1), placed("b", "n0", "1", 5), placed("c", "n0", "1", 3)]
    made = engine([node("n0")], residents, kinds=KINDS)
    assert chosen(preempt(made, pod("p", {"cpu": "2"}, priority=100))) == ["a"]


def test_of_equals_the_younger_node_loses() -> None:
    residents = [
        placed("old", "n0", "4", 1, start="2026-01-01T00:00:00Z"),
        placed("young", "n1", "4", 1, start="2026-02-01T00:00:00Z"),
    ]
    made = engine([node("n0"), node("n1")], residents, kinds=KINDS)
    assert chosen(preempt(made, pod("p", {"cpu": "4"}, priority=100))) == ["young"]


def test_budgets_turn_the_choice_but_do_not_forbid() -> None:
    residents = [placed("a", "n0", "4", 1, labels={"app": "db"}), placed("b", "n1", "4", 2)]
    made = engine([node("n0"), node("n1")], residents, kinds=KINDS)
    made.on_object(budget("db", 0, app="db"), 0.0)
    assert chosen(preempt(made, pod("p", {"cpu": "4"}, priority=100))) == ["b"]
    alone = engine([node("n0")], residents[:1], kinds=KINDS)
    alone.on_object(budget("db", 0, app="db"), 0.0)
    assert chosen(preempt(alone, pod("p", {"cpu": "4"}, priority=100))) == ["a"]


def test_within_a_node_budgets_protect_first() -> None:
    residents = [placed("safe", "n0", "2", 1, labels={"app": "db"}), placed("other", "n0", "2", 5)]
    made = engine([node("n0")], residents, kinds=KINDS)
    made.on_object(budget("db", 0, app="db"), 0.0)
    assert chosen(preempt(made, pod("p", {"cpu": "2"}, priority=100))) == ["other"]


def test_nodes_that_removal_cannot_help_are_left_alone() -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    outcome = preempt(made, pod("p", {"cpu": "4"}, priority=100, nodeSelector={"no": "where"}))
    assert outcome.victims == ()
    assert outcome.message == (
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        pytest.param({"preemptionPolicy": "Never"}, {}, id="spec"),
        pytest.param({}, {"scheduling.koordinator.sh/preemption-policy": "Never"}, id="label"),
    ],
)
def test_a_pod_may_renounce(fields: dict[str, Any], label: dict[str, str]) -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    outcome = preempt(made, pod("p", {"cpu": "4"}, priority=100, labels=label, **fields))
    assert outcome.victims == ()
    assert "preemptionPolicy=Never" in outcome.message


def test_non_preemptible_pods_stay() -> None:
    label = {"quota.scheduling.koordinator.sh/preemptible": "false"}
    made = engine([node("n0")], [placed("a", "n0", "4", 1, labels=label)], kinds=KINDS)
    assert preempt(made, pod("p", {"cpu": "4"}, priority=100)).victims == ()


def test_victims_are_told_and_deleted_and_the_room_is_kept_for_the_preemptor() -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    outcome = preempt(made, pod("p", {"cpu": "4"}, priority=100))
    assert outcome.result is Result.UNSCHEDULABLE
    mine = [write for write in made.writes if write.key.name == "a"]
    assert [write.verb for write in mine] == [Verb.PATCH_STATUS, Verb.DELETE]
    assert mine[1].body == "uid-a"
    made.on_pod(Action.ADD, pod("thief", {"cpu": "1"}, priority=50), 0.0)
    made.on_pod(Action.DELETE, placed("a", "n0", "4", 1), 1.0)
    assert drain(made, 1.0) == {"p": "n0"}
    assert drain(made, 20.0) == {}


def test_a_preemptor_waits_for_victims_on_their_way_out() -> None:
    leaving = placed("a", "n0", "4", 1, deletion_timestamp="2026-01-01T00:00:00Z")
    made = engine([node("n0")], [leaving], kinds=KINDS)
    waiting = pod("p", {"cpu": "4"}, priority=100, status={"nominatedNodeName": "n0"})
    outcome = preempt(made, waiting)
    assert outcome.victims == ()
    assert "terminating victims" in outcome.message
