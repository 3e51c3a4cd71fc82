"""ScheduleExplanation: what is written of pods and gangs that stay pending, how often, and when it goes again."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from api.crds import SCHEDULE_EXPLANATION, ScheduleExplanation
from api.crds.definition import definition_document
from cluster.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, Key, Patch
from cluster.twin import Twin
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb, Write
from scheduler.plugins import scheduleexplanation as module
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.scheduleexplanation import EXPLANATIONS, MANAGED_BY, ScheduleExplanations
from scheduler.profile import SchedulerSettings
from tests.schedobjects import BASE, drain, engine, node, pod, running_loop
from tests.waiting import wait_for

KINDS = {
    "coscheduling": Coscheduling,
    "defaultpreemption": DefaultPreemption,
    "nodeaffinity": NodeAffinity,
    "noderesourcesfit": NodeResourcesFit,
    "scheduleexplanation": ScheduleExplanations,
}
GANG = "gang.scheduling.koordinator.sh/"


def cluster(nodes: Iterable[Any], placed: Iterable[Any] = (), **config: Any) -> Engine:
    settings = {"enabled": True, "pending_seconds": 0, **config}
    return engine(nodes, placed, kinds=KINDS, plugins={"scheduleexplanation": settings})


def member(gang: str, number: int, minimum: int, **fields: Any) -> Any:
    annotations = {GANG + "name": gang, GANG + "min-available": str(minimum), **fields.pop("more", {})}
    return pod(f"m-{number}", {"cpu": "3"}, annotations=annotations, **fields)


def shown(made: Engine, write: Write, document: dict[str, Any] | None) -> None:
    """Let the watch show an object as it was written; None: it is gone."""
    action = Action.DELETE if document is None else Action.UPDATE
    value = None if document is None else msgspec.convert(document, ScheduleExplanation)
    made.on_object(ObjectEvent(EXPLANATIONS, action, write.key, None, value), made.now)


def tick(made: Engine, now: float) -> list[tuple[str, str]]:
    """Carry out what a tick writes of explanations: the verbs with the names of the objects."""
    made.writes.clear()
    made.tick(now)
    stored = made.objects(EXPLANATIONS)
    done = []
    for write in [write for write in made.writes if write.resource is EXPLANATIONS]:
        done.append((write.verb.value, str(write.key)))
        known: Any = msgspec.to_builtins(stored[write.key]) if write.key in stored else {}
        if write.verb is Verb.DELETE:
            assert write.body == known["metadata"]["uid"]
            shown(made, write, None)
        elif write.verb is Verb.CREATE:
            assert isinstance(write.body, dict)
            metadata = {**write.body["metadata"], "uid": f"uid of {write.key}"}
            shown(made, write, {**write.body, "metadata": metadata})
        else:
            assert isinstance(write.body, Patch)
            assert isinstance(write.body.body, dict)
            shown(made, write, {**known, **write.body.body})
    return done


def told(made: Engine, key: str) -> Any:
    namespace, _, name = key.partition("/")
    return msgspec.to_builtins(made.objects(EXPLANATIONS)[Key(namespace, name)])


def refused(made: Engine, *pods: Any, now: float = 0.0) -> None:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    drain(made, now)


def test_a_pod_that_fits_nowhere_is_explained_in_koordinators_fields() -> None:
    fast = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]
            }
        }
    }
    nodes = [node("b", labels={"disk": "fast"}), node("a", labels={"disk": "fast"}), node("c")]
    made = cluster(nodes)
    refused(made, pod("p", {"cpu": "8"}, affinity=fast))
    assert tick(made, 1.0) == [("create", "default/pod.p"), ("patch-status", "default/pod.p")]
    document = told(made, "default/pod.p")
    assert document["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}]
    assert document["spec"] == {"questionObjectKey": "default/p"}
    message = document["status"]["failedMessage"]
    assert message.startswith("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity")
    (domain,) = document["status"]["detailedExplanation"]
    assert document["status"]["lastUpdateTime"] == "1970-01-01T00:00:01Z"
    assert domain["scheduleExplanation"] == {
        "failedMessage": message,
        "nodeFailedDetails": [
            {
                "failedPlugin": "NodeAffinity",
                "reason": "node(s) didn't match Pod's node affinity/selector",
                "failedNodes": ["c"],
            },
            {
                "failedPlugin": "NodeResourcesFit",
                "reason": "Insufficient cpu",
                "preemptMightHelp": True,
                "failedNodes": ["a", "b"],
            },
        ],
    }


def test_it_goes_once_the_pod_is_bound() -> None:
    made = cluster([node("a")], [pod("old", {"cpu": "4"}, nodeName="a")])
    refused(made, pod("p", {"cpu": "4"}))
    tick(made, 1.0)
    made.on_pod(Action.DELETE, pod("old", {"cpu": "4"}, nodeName="a"), 20.0)
    assert drain(made, 20.0) == {"p": "a"}
    assert tick(made, 20.0) == [("delete", "default/pod.p")]
    assert tick(made, 90.0) == []


def test_it_is_written_again_when_it_changes_and_once_a_minute() -> None:
    made = cluster([node("a")])
    refused(made, pod("p", {"cpu": "8"}))
    tick(made, 1.0)
    assert [now for now in range(2, 130) if tick(made, float(now))] == [61, 121]
    made.on_node(Action.ADD, node("b"), 122.0)
    made.activate(["uid-p"])
    drain(made, 122.0)
    assert [now for now in range(122, 150) if tick(made, float(now))] == [131]
    assert told(made, "default/pod.p")["status"]["failedMessage"].startswith("0/2 nodes")


def test_pods_are_explained_after_a_while_and_no_more_of_them_than_is_set() -> None:
    made = cluster([node("a")], pending_seconds=30, max_objects=4, writes_per_second=3)
    refused(made, *(pod(f"p{number}", {"cpu": "8"}) for number in range(9)))
    assert tick(made, 29.0) == []
    assert len(tick(made, 30.0)) == 2 * 3
    assert len(tick(made, 31.0)) == 2
    assert len(made.objects(EXPLANATIONS)) == 4


def namespaces(made: Engine) -> Counter[str]:
    return Counter(key.namespace for key in made.objects(EXPLANATIONS))


def test_a_namespace_that_has_all_places_gives_some_to_others() -> None:
    made = cluster([node("a")], max_objects=6, writes_per_second=20)
    refused(made, *(pod(f"p{number}", {"cpu": "8"}, namespace="greedy") for number in range(9)))
    tick(made, 1.0)
    assert namespaces(made) == {"greedy": 6}
    refused(
        made, *(pod(f"q{number}", {"cpu": "8"}, namespace="late", uid=f"q{number}") for number in range(9)), now=2.0
    )
    assert Counter(verb for verb, _ in tick(made, 2.0)) == {"delete": 3, "create": 3, "patch-status": 3}
    assert namespaces(made) == {"greedy": 3, "late": 3}
    refused(made, pod("r", {"cpu": "8"}, namespace="last"), now=3.0)
    tick(made, 3.0)
    assert namespaces(made)["last"] == 1
    assert sum(namespaces(made).values()) == 6
    before = set(made.objects(EXPLANATIONS))
    for now in (400.0, 800.0):  # tried again, and no place changes
        refused(made, now=now)
        tick(made, now)
        assert set(made.objects(EXPLANATIONS)) == before


def test_a_place_that_was_given_up_before_its_object_was_seen_leaves_none_behind() -> None:
    made = cluster([node("a")], max_objects=2, writes_per_second=20)
    refused(made, *(pod(f"p{number}", {"cpu": "8"}, namespace="greedy") for number in range(2)))
    made.writes.clear()
    made.tick(1.0)
    unseen = [write for write in made.writes if write.verb is Verb.CREATE]
    refused(made, pod("q", {"cpu": "8"}, namespace="late"), now=1.0)
    for write in unseen:
        assert isinstance(write.body, dict)
        shown(made, write, {**write.body, "metadata": {**write.body["metadata"], "uid": f"uid of {write.key}"}})
    tick(made, 2.0)
    assert namespaces(made) == {"greedy": 1, "late": 1}


def test_a_gang_is_explained_by_the_member_that_found_no_node() -> None:
    made = cluster([node("a")])
    refused(made, *(member("g", number, 2) for number in range(2)))
    assert tick(made, 1.0) == [("create", "default/gang.g"), ("patch-status", "default/gang.g")]
    document = told(made, "default/gang.g")
    assert document["spec"]["questionObjectKey"] == "default/g"
    assert [each["name"] for each in document["metadata"]["ownerReferences"]] == ["m-0", "m-1"]
    (domain,) = document["status"]["detailedExplanation"]
    (detail,) = domain["scheduleExplanation"]["nodeFailedDetails"]
    assert (detail["reason"], detail["failedNodes"]) == ("Insufficient cpu", ["a"])
    made.on_node(Action.ADD, node("b"), 20.0)
    assert sorted(drain(made, 20.0)) == ["m-0", "m-1"]
    assert tick(made, 20.0) == [("delete", "default/gang.g")]


def test_of_a_large_gang_the_member_that_found_no_node_is_among_those_listed() -> None:
    made = cluster([node(f"n{number}") for number in range(68)])
    refused(made, *(member("g", number, 70) for number in range(100, 170)))
    tick(made, 1.0)
    document = told(made, "default/gang.g")
    owners = [each["name"] for each in document["metadata"]["ownerReferences"]]
    assert len(owners) == module.MAX_MEMBERS
    assert "m-168" in owners
    (domain,) = document["status"]["detailedExplanation"]
    (detail,) = domain["scheduleExplanation"]["nodeFailedDetails"]
    assert (detail["reason"], len(detail["failedNodes"])) == ("Insufficient cpu", 68)


def test_members_of_a_loose_gang_that_have_nodes_are_listed() -> None:
    made = cluster([node("a")])
    refused(made, *(member("g", number, 3, more={GANG + "mode": "NonStrict"}) for number in range(3)))
    tick(made, 1.0)
    (domain,) = told(made, "default/gang.g")["status"]["detailedExplanation"]
    (placed,) = domain["scheduleExplanation"]["feasibleSchedulingResult"]
    assert placed["nodeName"] == "a"


def test_a_gang_that_lacks_members_is_explained_though_none_is_tried() -> None:
    made = cluster([node("a")])
    refused(made, member("g", 0, 2))
    tick(made, 1.0)
    assert told(made, "default/gang.g")["status"]["failedMessage"] == "gang default/g has 1 of 2 members, 1 missing"


@pytest.mark.parametrize("name", ["../../kube-system/x", "UPPER", "other/gang", pytest.param("a" * 300, id="long")])
def test_the_name_of_a_gang_leads_into_no_other_namespace(name: str) -> None:
    made = cluster([node("a")])
    groups = {GANG + "groups": json.dumps([f"default/{name}", "other/b"])}
    refused(made, member(name, 0, 2, more=groups))
    ((verb, _), _) = tick(made, 1.0)
    assert verb == "create"
    (key,) = made.objects(EXPLANATIONS)
    assert key.namespace == "default"
    assert key.name.startswith("gang.")
    assert len(key.name) < 64
    assert key.name.replace(".", "").isalnum()


def test_room_that_preemption_makes_is_told_with_its_victims() -> None:
    made = cluster([node("a")], [pod("low", {"cpu": "4"}, nodeName="a", priority=1)])
    refused(made, pod("p", {"cpu": "4"}, priority=10))
    tick(made, 1.0)
    status = told(made, "default/pod.p")["status"]
    assert status["schedulableAfterPreemption"]
    (domain,) = status["detailedExplanation"]
    low = {"namespace": "default", "name": "low", "uid": "uid-low"}
    assert domain["nodePossibleVictims"] == [{"nodeName": "a", "possibleVictims": [low]}]
    assert domain["preemptExplanation"] == {
        "schedulable": True,
        "feasibleSchedulingResult": [{"namespace": "default", "name": "p", "uid": "uid-p", "nodeName": "a"}],
    }


def earlier(made: Engine, key: str, owner: str, labels: dict[str, str]) -> None:
    namespace, _, name = key.partition("/")
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner}]
    metadata = {"namespace": namespace, "name": name, "uid": "7", "labels": labels, "ownerReferences": owners}
    value = msgspec.convert({"metadata": metadata}, ScheduleExplanation)
    made.on_object(ObjectEvent(EXPLANATIONS, Action.ADD, Key(namespace, name), None, value), 0.0)


def test_that_of_an_earlier_pod_by_the_name_is_made_anew() -> None:
    made = cluster([node("a")])
    earlier(made, "default/pod.p", "uid of the earlier one", MANAGED_BY)
    refused(made, pod("p", {"cpu": "8"}))
    assert tick(made, 1.0) == [("delete", "default/pod.p")]
    assert tick(made, 2.0) == [("create", "default/pod.p"), ("patch-status", "default/pod.p")]


def test_what_others_made_is_left_alone() -> None:
    made = cluster([node("a")], [pod("placed", {"cpu": "1"}, nodeName="a")])
    earlier(made, "default/pod.p", "uid-p", {})
    earlier(made, "default/pod.placed", "uid-placed", {})
    earlier(made, "default/pod.elsewhere", "uid-elsewhere", MANAGED_BY)
    refused(made, pod("p", {"cpu": "8"}))
    assert tick(made, 1.0) == []


def test_what_the_leader_before_left_is_deleted_once_its_pods_are_placed() -> None:
    made = cluster([node("a")], [pod("placed", {"cpu": "1"}, nodeName="a")])
    earlier(made, "default/pod.placed", "uid-placed", MANAGED_BY)
    made.leads()
    assert tick(made, 1.0) == [("delete", "default/pod.placed")]


def test_a_write_that_fails_stops_all_for_a_while() -> None:
    made = cluster([node("a")])
    refused(made, pod("p", {"cpu": "8"}))
    made.tick(1.0)
    write = next(write for write in made.writes if write.resource is EXPLANATIONS)
    assert not write.repeat
    made.write_failed(write, "the server could not find the requested resource")
    assert next(now for now in range(2, 70) if tick(made, float(now))) == 61


def test_it_is_off_unless_asked_for() -> None:
    assert "ScheduleExplanation" not in Engine().plugins


def test_the_api_server_keeps_every_field_and_the_object_goes_with_its_pod() -> None:
    settings = SchedulerSettings(plugins={"scheduleexplanation": {"enabled": True, "pending_seconds": 0}})
    with Twin() as twin, twin.client() as client:
        client.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(SCHEDULE_EXPLANATION))
        twin.load(NODES, [node("a")])
        twin.load(PODS, [pod("p", {"cpu": "8"})])
        made = Engine(settings, kinds={**BASE, **KINDS})
        with running_loop(twin, made):
            wait_for(lambda: [each for each in twin.objects(EXPLANATIONS).values() if each.get("status")])
            (document,) = twin.objects(EXPLANATIONS).values()
            (domain,) = document["status"]["detailedExplanation"]
            (detail,) = domain["scheduleExplanation"]["nodeFailedDetails"]
            assert detail == {
                "failedPlugin": "NodeResourcesFit",
                "reason": "Insufficient cpu",
                "preemptMightHelp": True,
                "failedNodes": ["a"],
            }
            (owner,) = document["metadata"]["ownerReferences"]
            assert owner["uid"] == twin.objects(PODS)[Key("default", "p")]["metadata"]["uid"]
            client.delete(PODS, Key("default", "p"))
            wait_for(lambda: not twin.objects(EXPLANATIONS))
