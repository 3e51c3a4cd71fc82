"""Annotations that only the scheduler writes: believed from no other author, kept as they were, at most as asked."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota as QuotaObject
from cluster.pods import Binding
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, Attempt, ObjectEvent, Plugin, Reason, Verb
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.elasticquota import QUOTAS, ElasticQuota
from scheduler.plugins.nodenumaresource import NodeNUMAResource
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from tests.schedobjects import drain, engine, node, pod

DEVICES = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
DRAWN = "scheduling.koordinator.sh/reservation-allocated"
CLAIMS = {DEVICES: '{"gpu":[{"minor":0}]}', STATUS: '{"cpuset":"0-3"}', DRAWN: '{"uid":"r"}'}
QUOTA = "quota.scheduling.koordinator.sh/"


def numa(made: Engine) -> NodeNUMAResource:
    found = made.plugins["NodeNUMAResource"]
    assert isinstance(found, NodeNUMAResource)
    return found


def held(made: Engine) -> dict[str, set[int]]:
    return {uid: set(hold.cpus) for machine in numa(made).machines.values() for uid, hold in machine.holders.items()}


def fit(*items: Any) -> Engine:
    return engine([node("n0")], items, kinds={"fit": NodeResourcesFit, "numa": NodeNUMAResource})


def test_a_pending_pods_claims_count_for_nothing_and_are_emptied_with_the_binding() -> None:
    made = fit()
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}, annotations={**CLAIMS, "mine": "x"}), 0.0)
    assert made.schedule_one(0.0) is not None
    assert not held(made)
    [plan] = made.bindings
    [write] = [write for write in plan.writes if write.verb is Verb.BIND]
    assert isinstance(write.body, Binding)
    assert write.body.annotations == dict.fromkeys(CLAIMS, "")


@pytest.mark.parametrize(
    ("scheduler", "cpu", "cpus"),
    [
        pytest.param("koord-scheduler", "4", {0, 1, 2, 3}, id="ours"),
        pytest.param("default-scheduler", "4", None, id="of-another-scheduler"),
        pytest.param("koord-scheduler", "3", set(), id="more-than-asked"),
    ],
)
def test_a_bound_pods_cpus_are_believed_of_our_scheduler_and_as_far_as_asked(
    scheduler: str, cpu: str, cpus: set[int] | None
) -> None:
    made = fit(pod("p", {"cpu": cpu}, annotations=CLAIMS, nodeName="n0", schedulerName=scheduler))
    assert held(made) == ({} if cpus is None else {"uid-p": cpus})


@pytest.mark.parametrize(
    ("leading", "cpus"), [pytest.param(True, set(), id="leader"), pytest.param(False, {0, 1, 2, 3}, id="standby")]
)
def test_a_leader_believes_of_bound_pods_what_it_bound_itself(leading: bool, cpus: set[int]) -> None:
    made = fit()
    made.leads()
    if not leading:
        made.follows()
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}, annotations=CLAIMS, nodeName="n0"), 0.0)
    assert held(made).get("uid-p", set()) == cpus


class GivesCpus(Plugin[None]):
    """Decides on CPUs for every pod."""

    name = "GivesCpus"

    def reserve(self, attempt: Attempt, spec: None, row: int) -> Reason | None:
        attempt.pod.patch[STATUS] = '{"cpuset":"0-1"}'
        return None


def test_a_binding_counts_as_it_was_sent_also_when_its_answer_was_lost() -> None:
    made = engine([node("n0")], kinds={"fit": NodeResourcesFit, "gives": GivesCpus})
    made.leads()
    made.on_pod(Action.ADD, pod("p", {"cpu": "2"}), 0.0)
    made.schedule_one(0.0)
    made.bind_failed(made.bindings.popleft(), "no answer", 1.0)
    assert not made.snapshot.pods
    forged = pod("p", {"cpu": "2"}, annotations={STATUS: '{"cpuset":"2-3"}'}, nodeName="n0")
    made.on_pod(Action.UPDATE, forged, 2.0)
    assert made.snapshot.pods["uid-p"].info.annotation(STATUS) == '{"cpuset":"0-1"}'


def test_what_is_written_to_a_bound_pod_later_changes_nothing() -> None:
    made = fit(pod("p", {"cpu": "4"}, annotations={STATUS: '{"cpuset":"0-3"}'}, nodeName="n0"))
    later = pod("p", {"cpu": "4"}, annotations={STATUS: '{"cpuset":"4-7"}', "koordinator.sh/x": "y"}, nodeName="n0")
    made.on_pod(Action.UPDATE, later, 1.0)
    assert held(made) == {"uid-p": {0, 1, 2, 3}}
    made.on_pod(Action.UPDATE, pod("p", {"cpu": "4"}, labels={"a": "b"}, nodeName="n0"), 2.0)
    assert held(made) == {"uid-p": {0, 1, 2, 3}}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"cpuset":"0-99999999999"}', id="range"),
        pytest.param('{"cpuset":"' + "0-8191," * 5000 + '"}', id="repeated"),
        pytest.param('{"numaNodeResources":[{"node":99999999999,"resources":{"cpu":"1"}}]}', id="numa-node"),
        pytest.param('{"numaNodeResources":[{"node":0,"resources":{"cpu":"1e999999"}}]}', id="quantity"),
        pytest.param('{"numaNodeResources":[{"node":0,"resources":{"cpu":"-5"}}]}', id="negative"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"cpuset":' + "[" * 5000, id="deep-inside"),
        pytest.param('{"gpu":[{"minor":0,"extension":{"vfs":5}}]}', id="vfs"),
        pytest.param('{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"1e99999999"}}]}', id="amount"),
    ],
)
def test_no_annotation_ends_the_engine_or_half_charges_a_pod(text: str) -> None:
    made = engine([node("n0")])
    pods = [
        pod(f"p{index}", {"cpu": "1", **extra}, annotations=dict.fromkeys(CLAIMS, text), nodeName="n0")
        for index, extra in enumerate(({}, {"koordinator.sh/gpu": "100"}))
    ]
    for each in pods:
        made.on_pod(Action.ADD, each, 0.0)
    assert not made.snapshot.faults
    assert made.snapshot.requested[0, 0] == 2000
    for each in pods:
        made.on_pod(Action.DELETE, each, 1.0)
    assert made.snapshot.requested[0, 0] == 0


def quota(namespace: str, name: str, most: str, **fields: Any) -> ObjectEvent:
    labels = {QUOTA + key: value for key, value in fields.get("labels", {}).items()}
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "creationTimestamp": fields.get("created", "2026-01-01T00:00:00Z"),
        "annotations": {QUOTA + key: value for key, value in fields.get("annotations", {}).items()},
    }
    document = {"metadata": metadata, "spec": {"min": {"cpu": "0"}, "max": {"cpu": most}}}
    return ObjectEvent(QUOTAS, Action.ADD, Key(namespace, name), None, msgspec.convert(document, QuotaObject))


def quotas(*events: ObjectEvent) -> Engine:
    plugins = {"elasticquota": {"create_reserved_quotas": False}}
    made = engine([node("n0", allocatable={"cpu": "64"})], kinds={"elasticquota": ElasticQuota}, plugins=plugins)
    for event in events:
        made.on_object(event, 0.0)
    return made


def placed(made: Engine, namespace: str, labels: dict[str, str] | None = None, **fields: Any) -> int:
    for index in range(4):
        made.on_pod(Action.ADD, pod(f"p{index}", {"cpu": "1"}, namespace=namespace, labels=labels or {}, **fields), 0.0)
    return len(drain(made))


def test_a_quota_of_another_namespace_cannot_take_the_name() -> None:
    theirs = quota("attacker", "victim", "0", created="2026-02-01T00:00:00Z")
    made = quotas(quota("victim", "victim", "3"), theirs)
    assert placed(made, "victim") == 3
    made.on_object(ObjectEvent(QUOTAS, Action.DELETE, theirs.key, theirs.after, None), 0.0)
    assert made.plugins["ElasticQuota"].routes()["quotas/{name}"]("victim")["max"] == {"cpu": 3000}


def test_a_refused_quota_says_so_once() -> None:
    made = quotas(
        quota("victim", "victim", "3"), quota("zz", "victim", "0"), quota("zz", "koordinator-default-quota", "0")
    )
    made.tick(1.0)
    told = {
        str(write.key): write.body.body["metadata"]["annotations"][QUOTA + "refused"]  # type: ignore[union-attr,index,call-overload]
        for write in made.writes
        if write.key.namespace == "zz"
    }
    assert told == {
        "zz/victim": "the name is taken by victim/victim",
        "zz/koordinator-default-quota": "the name is reserved to namespace koordinator-system",
    }
    made.writes.clear()
    made.tick(2.0)
    assert not [write for write in made.writes if write.key.namespace == "zz"]


def test_a_pod_names_only_quotas_that_consent() -> None:
    rich = quota("rich", "rich", "64")
    assert placed(quotas(rich, quota("poor", "poor", "1")), "poor", {QUOTA + "name": "rich"}) == 1
    listing = quota("rich", "rich", "2", annotations={"namespaces": '["poor"]'})
    assert placed(quotas(listing, quota("poor", "poor", "1")), "poor", {QUOTA + "name": "rich"}) == 2
    for_all = quota("koordinator-system", "shared", "3")
    assert placed(quotas(for_all, quota("poor", "poor", "1")), "poor", {QUOTA + "name": "shared"}) == 3


def test_a_quota_captures_no_foreign_namespace() -> None:
    made = quotas(quota("attacker", "trap", "0", annotations={"namespaces": '["victim"]'}))
    assert placed(made, "victim") == 4


def test_a_user_cannot_stand_in_for_a_reservation() -> None:
    made = quotas(quota("team", "team", "1"))
    assert placed(made, "team", annotations={"scheduling.koordinator.sh/reserve-pod": "true"}) == 1


def test_a_gang_shares_its_fate_only_with_gangs_that_name_it() -> None:
    made = engine([node("n0")], kinds={"fit": NodeResourcesFit, "gangs": Coscheduling})
    gang = "gang.scheduling.koordinator.sh/"

    def member(namespace: str, name: str, cpu: str, minimum: int, *groups: str) -> Any:
        annotations = {gang + "name": "g", gang + "min-available": str(minimum)}
        if groups:
            annotations[gang + "groups"] = json.dumps(groups)
        return pod(name, {"cpu": cpu}, namespace=namespace, uid=f"{namespace}-{name}", annotations=annotations)

    for index in range(2):
        made.on_pod(Action.ADD, member("victim", f"v{index}", "1", 2), 0.0)
    assert made.schedule_one(0.0) is not None
    made.on_pod(Action.ADD, member("attacker", "a", "99", 1, "victim/g", "attacker/g"), 0.0)
    bound = drain(made)
    assert set(bound) == {"v0", "v1"}
    queued = made.queue.get("attacker-a")
    assert queued is not None
    assert queued.reason == "gang attacker/g is bound to gang victim/g, which does not name the same gangs"
    for index in range(65):
        made.on_pod(Action.ADD, member("big", "b", "1", 1, *(f"big/g{number}" for number in range(index))), 0.0)
