"""Victims of preemption, with respect to budgets and importance."""

from typing import Any

import msgspec
import pytest

from api.crds import Reservation as ReservationObject
from api.kube.objects import PodDisruptionBudget
from api.protocol import ANNOTATION_RESERVATION_ALLOCATED
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.nodeunschedulable import NodeUnschedulable
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.reservation import ReservationPlugin
from scheduler.preemption import BUDGETS
from scheduler.reservation.ledger import RESERVATIONS
from tests.schedobjects import drain, engine, node, pod

KINDS = {
    "noderesourcesfit": NodeResourcesFit,
    "nodeaffinity": NodeAffinity,
    "defaultpreemption": DefaultPreemption,
}


UNSCHEDULABLE = {"nodeunschedulable": NodeUnschedulable}


def placed(name: str, where: str, cpu: str, priority: int, **fields: Any) -> Any:
    start = fields.pop("start", "2026-01-01T00:00:00Z")
    return pod(name, {"cpu": cpu}, nodeName=where, priority=priority, status={"startTime": start}, **fields)


def terminating(reason: str) -> Any:
    """A pod on its way out of n0."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return pod(
        "a",
        {"cpu": "4"},
        nodeName="n0",
        priority=1,
        deletion_timestamp="2026-01-01T00:00:00Z",
        status={"conditions": [condition]},
    )


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


@pytest.mark.parametrize(
    ("labels", "victim"),
    [
        pytest.param({"a": "5", "b": "3"}, "b", id="lower"),
        pytest.param({"a": "3", "b": "5"}, "a", id="lower-though-older"),
        pytest.param({"a": "-1"}, "a", id="none-is-zero"),
        pytest.param({"a": "9" * 5000}, "b", id="unreadable-is-zero"),
    ],
)
def test_of_victims_of_equal_priority_the_lower_sub_priority_goes(labels: dict[str, str], victim: str) -> None:
    residents = [
        placed(
            name,
            "n0",
            "2",
            1,
            start=f"2026-01-0{number}T00:00:00Z",
            labels={"koordinator.sh/priority": labels[name]} if name in labels else {},
        )
        for number, name in enumerate(("a", "b"), 1)
    ]
    made = engine([node("n0")], residents, kinds=KINDS)
    assert chosen(preempt(made, pod("p", {"cpu": "2"}, priority=100))) == [victim]


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


def test_a_label_of_quotas_makes_nobody_immortal() -> None:
    label = {"quota.scheduling.koordinator.sh/preemptible": "false"}
    made = engine([node("n0")], [placed("a", "n0", "4", 1, labels=label)], kinds=KINDS)
    assert chosen(preempt(made, pod("p", {"cpu": "4"}, priority=100))) == ["a"]


def test_victims_are_told_and_deleted_and_the_room_is_kept_for_the_preemptor() -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    outcome = preempt(made, pod("p", {"cpu": "4"}, priority=100))
    assert outcome.result is Result.UNSCHEDULABLE
    [chain] = made.chains
    assert [(write.verb, write.key.name) for write in chain.writes] == [
        (Verb.PATCH_STATUS, "p"),
        (Verb.PATCH_STATUS, "a"),
        (Verb.DELETE, "a"),
    ]
    assert chain.writes[0].body.body["status"]["nominatedNodeName"] == "n0"  # type: ignore[union-attr,index,call-overload]
    assert chain.writes[2].body == "uid-a"
    assert not made.writes
    made.on_pod(Action.ADD, pod("thief", {"cpu": "1"}, priority=50), 0.0)
    made.on_pod(Action.DELETE, placed("a", "n0", "4", 1), 1.0)
    assert drain(made, 1.0) == {"p": "n0"}
    assert drain(made, 20.0) == {}


def test_a_preemptor_waits_for_victims_on_their_way_out() -> None:
    made = engine([node("n0")], [terminating("PreemptionByScheduler")], kinds=KINDS)
    waiting = pod("p", {"cpu": "4"}, priority=100, status={"nominatedNodeName": "n0"})
    outcome = preempt(made, waiting)
    assert outcome.victims == ()
    assert "terminating victims" in outcome.message


def test_a_pod_that_its_user_deletes_is_no_victim_to_wait_for() -> None:
    made = engine([node("n0"), node("n1")], [terminating("DeletionByTaintManager")], kinds=KINDS)
    made.on_pod(Action.ADD, placed("b", "n1", "4", 1), 0.0)
    waiting = pod("p", {"cpu": "4"}, priority=100, status={"nominatedNodeName": "n0"})
    assert preempt(made, waiting).victims


def test_a_nomination_that_is_late_costs_no_further_victim() -> None:
    nodes = [node(f"n{index}") for index in range(250)]
    residents = [placed(f"v{index}", f"n{index}", "4", 1) for index in range(250)]
    made = engine(nodes, residents, kinds=KINDS)
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}, priority=100), 0.0)
    deleted: list[str] = []
    for now in (0.0, 30.0, 60.0, 90.0):
        made.queue.activate(["uid-p"], now)
        made.schedule_one(now)
        deleted += [write.key.name for chain in made.chains for write in chain.writes if write.verb is Verb.DELETE]
        made.chains.clear()
    assert len(deleted) == 1


def test_a_chain_that_ends_early_is_tried_again_after_back_off() -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    preempt(made, pod("p", {"cpu": "4"}, priority=100))
    made.chains.clear()
    made.chain_failed("uid-p", "pods/status may not be written")
    assert made.promise("uid-p") is None
    assert made.schedule_one(0.5) is None
    assert made.schedule_one(1.5) is not None
    assert len(made.chains) == 1


def test_a_node_that_has_become_hopeless_is_not_waited_for() -> None:
    made = engine([node("n0"), node("n1")], [terminating("PreemptionByScheduler")], kinds={**KINDS, **UNSCHEDULABLE})
    made.on_pod(Action.ADD, placed("b", "n1", "4", 1), 0.0)
    waiting = pod("p", {"cpu": "4"}, priority=100, status={"nominatedNodeName": "n0"})
    assert "terminating victims" in preempt(made, waiting).message
    made.on_node(Action.UPDATE, node("n0", unschedulable=True), 20.0)
    made.queue.activate(["uid-p"], 20.0)
    outcome = made.schedule_one(20.0)
    assert outcome is not None
    assert chosen(outcome) == ["b"]


def test_a_less_important_pod_loses_the_promise_of_the_row() -> None:
    made = engine([node("n0")], [placed("a", "n0", "4", 1)], kinds=KINDS)
    preempt(made, pod("p", {"cpu": "4"}, priority=100))
    preempt(made, pod("q", {"cpu": "4"}, priority=200))
    assert made.promise("uid-p") is None
    assert made.promise("uid-q") is not None


def gang(size: int, cpu: str = "3", priority: int = 100, **fields: Any) -> list[Any]:
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": str(size)}
    return [pod(f"g{index}", {"cpu": cpu}, annotations=keys, priority=priority, **fields) for index in range(size)]


def attempted(made: Engine, pods: list[Any], now: float = 0.0) -> list[str]:
    """Victims of one round of attempts."""
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    while made.schedule_one(now) is not None:
        pass
    victims = [write.key.name for chain in made.chains for write in chain.writes if write.verb is Verb.DELETE]
    made.chains.clear()
    return sorted(victims)


def test_a_gang_that_cannot_fit_has_no_victims() -> None:
    residents = [placed(f"v{index}", f"n{index}", "4", 1) for index in range(2)]
    made = engine([node("n0"), node("n1")], residents, kinds={**KINDS, "gangs": Coscheduling})
    for now in (0.0, 20.0, 40.0, 400.0):
        made.tick(now)
        assert attempted(made, gang(3), now) == []


def test_a_gang_that_fits_by_preemption_has_the_victims_that_it_takes_and_binds() -> None:
    residents = [placed("v0", "n0", "4", 1), placed("v1", "n1", "4", 1), placed("small", "n1", "0", 1)]
    made = engine([node("n0"), node("n1"), node("n2")], residents, kinds={**KINDS, "gangs": Coscheduling})
    assert attempted(made, gang(3)) == ["v0", "v1"]
    assert attempted(made, [], 20.0) == []
    for index in range(2):
        made.on_pod(Action.DELETE, residents[index], 30.0)
    assert set(drain(made, 60.0)) == {"g0", "g1", "g2"}


def test_a_gang_that_is_spread_takes_free_nodes_and_victims_in_turn() -> None:
    """Members go to free nodes of one zone and to nodes of the other by victims; what is free may come last."""
    nodes = [node(f"{zone}{index}", labels={"zone": zone}) for zone in "ab" for index in range(2)]
    residents = [placed(f"v{index}", f"b{index}", "4", 1) for index in range(2)]
    rule = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "g"}},
    }
    members = gang(4, labels={"app": "g"}, topologySpreadConstraints=[rule])
    made = engine(nodes, residents, kinds={**KINDS, "gangs": Coscheduling, "spread": PodTopologySpread})
    assert attempted(made, members) == ["v0", "v1"]
    for resident in residents:
        made.on_pod(Action.DELETE, resident, 30.0)
    assert sorted(drain(made, 60.0).values()) == ["a0", "a1", "b0", "b1"]


def test_a_victim_that_leaves_may_open_other_nodes_to_a_gang() -> None:
    """No member may be in the victim's zone; with the victim gone the second node is free."""
    nodes = [node(f"n{index}", labels={"zone": "z"}) for index in range(2)]
    enemy = placed("enemy", "n0", "1", 1, labels={"app": "enemy"})
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "enemy"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made = engine(nodes, [enemy], kinds={**KINDS, "gangs": Coscheduling, "interpod": InterPodAffinity})
    assert attempted(made, gang(2, affinity=apart)) == ["enemy"]
    made.on_pod(Action.DELETE, enemy, 30.0)
    assert sorted(drain(made, 60.0).values()) == ["n0", "n1"]


def test_a_reservation_is_no_victim() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "4"}}}
    document = {
        "metadata": {"name": "r", "uid": "uid-r", "labels": {"koordinator.sh/priority": "10"}},
        "spec": {"template": {"spec": {"containers": [container]}}, "owners": [{"object": {"name": "x"}}], "ttl": "0s"},
        "status": {"phase": "Available", "nodeName": "n0"},
    }
    made = engine([node("n0")], kinds={**KINDS, "reservation": ReservationPlugin})
    item = msgspec.convert(document, ReservationObject)
    made.on_object(ObjectEvent(RESERVATIONS, Action.ADD, Key("", "r"), None, item), 0.0)
    made.tick(0.0)
    assert made.snapshot.requested[0, 0] == 4000
    assert preempt(made, pod("p", {"cpu": "4"}, priority=100)).victims == ()
    assert not made.chains


def test_a_pod_in_a_reservation_takes_no_room_beside_it_and_stays() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    document = {
        "metadata": {"name": "r", "uid": "uid-r"},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "owners": [{"object": {"name": "x"}}],
            "allocateOnce": False,
            "ttl": "0s",
        },
        "status": {"phase": "Available", "nodeName": "n0"},
    }
    made = engine([node("n0")], kinds={**KINDS, "reservation": ReservationPlugin})
    item = msgspec.convert(document, ReservationObject)
    made.on_object(ObjectEvent(RESERVATIONS, Action.ADD, Key("", "r"), None, item), 0.0)
    allocated = {ANNOTATION_RESERVATION_ALLOCATED: '{"name": "r", "uid": "uid-r"}'}
    for resident in (placed("x", "n0", "2", 5, annotations=allocated), placed("low", "n0", "2", 1)):
        made.on_pod(Action.ADD, resident, 0.0)
    made.tick(0.0)
    assert made.snapshot.requested[0, 0] == 4000
    assert chosen(preempt(made, pod("p", {"cpu": "2"}, priority=100))) == ["low"]
