"""Reservations with `spec.preAllocation` in an engine: they take placed pods, and have their room as these end."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import Reservation as ReservationObject
from api.kube.times import rfc3339
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.reservation import ReservationPlugin
from scheduler.reservation.ledger import RESERVATIONS
from scheduler.reservation.taking import MAX_ROWS
from tests.schedobjects import drain, engine, node, pod

KINDS = {"reservation": ReservationPlugin, "noderesourcesfit": NodeResourcesFit}
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
REQUIRED = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
MARKED = {"pod.koordinator.sh/is-pre-allocatable": "true"}
T0 = 1000.0


def reservation(name: str, cpu: str = "4", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": rfc3339(T0), "labels": fields.pop("labels", {})}
    spec = {
        "template": {"spec": {"containers": [container], **fields.pop("pod", {})}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "allocatePolicy": "Restricted",
        "allocateOnce": False,
        "preAllocation": True,
        "ttl": "1h",
    }
    return {"metadata": meta, "status": fields.pop("status", {}), "spec": spec | fields}


def tell(made: Engine, document: dict[str, Any], action: Action = Action.UPDATE, now: float = T0) -> None:
    made.now = now
    after = None if action is Action.DELETE else msgspec.convert(document, ReservationObject)
    made.on_object(ObjectEvent(RESERVATIONS, action, Key("", document["metadata"]["name"]), None, after), now)


def web(name: str, cpu: str = "3", **fields: Any) -> Any:
    return pod(name, {"cpu": cpu}, labels={"app": "web", **fields.pop("labels", {})}, **fields)


def running(name: str, cpu: str = "3", host: str = "n0", **fields: Any) -> Any:
    return web(name, cpu, nodeName=host, phase="Running", **fields)


def cluster(*placed: Any, nodes: int = 1, **config: Any) -> Engine:
    made = engine([node(f"n{n}") for n in range(nodes)], placed, kinds=KINDS, plugins={"reservation": config})
    made.tick(T0)
    return made


def reserve(made: Engine, document: dict[str, Any], now: float = T0) -> dict[str, Any]:
    """Place the reservation; the status that was written last."""
    made.writes.clear()
    tell(made, document, Action.ADD, now)
    bound: dict[str, Any] = {}
    while made.schedule_one(now) is not None:
        while made.bindings:
            binding = made.bindings.popleft()
            body: Any = binding.writes[-1].body
            bound = body.body["status"]
            made.bound(binding, now)
    made.tick(now)
    if bound:
        return bound
    last: Any = [write for write in made.writes if write.verb is Verb.PATCH_STATUS][-1].body
    status: dict[str, Any] = last.body["status"]
    return status


def charged(made: Engine, row: int = 0) -> int:
    return int(made.snapshot.requested[row, 0])


def test_a_full_node_is_taken_over_as_its_pods_end() -> None:
    made = cluster(running("old", "3"))
    status = reserve(made, reservation("r", "4"))
    assert (status["phase"], status["nodeName"]) == ("Available", "n0")
    assert [owner["uid"] for owner in status["currentOwners"]] == ["uid-old"]
    assert status["allocated"] == {"cpu": "3"}
    assert charged(made) == 4000
    made.on_pod(Action.ADD, pod("stranger", {"cpu": "2"}), T0 + 1)
    made.on_pod(Action.ADD, web("new", "3"), T0 + 1)
    assert drain(made, T0 + 1) == {}
    made.on_pod(Action.DELETE, running("old", "3"), T0 + 2)
    assert charged(made) == 4000
    assert drain(made, T0 + 60) == {"new": "n0"}
    assert json.loads(made.snapshot.pods["uid-new"].info.patch[ALLOCATED])["uid"] == "uid-r"
    assert charged(made) == 4000


def test_a_one_time_reservation_is_used_up_by_the_pod_that_it_takes() -> None:
    made = cluster(running("old", "3"))
    reserve(made, reservation("r", "4", allocateOnce=True))
    made.tick(T0 + 1)
    found = made.plugins["Reservation"]
    assert isinstance(found, ReservationPlugin)
    assert found.describe("n0")["r"]["phase"] == "Succeeded"
    assert charged(made) == 3000


@pytest.mark.parametrize(
    ("placed", "fields", "config", "text"),
    [
        pytest.param(["3"], {"allocatePolicy": "Aligned"}, {}, "Restricted", id="not-restricted"),
        pytest.param(["3"], {"preAllocationPolicy": {"mode": "Cluster"}}, {}, "Cluster is off", id="cluster-mode-off"),
        pytest.param([], {"labels": REQUIRED}, {}, "without a pod that the reservation can take", id="none-to-take"),
        pytest.param(["1", "1", "1"], {}, {}, "do not make up the reservation", id="one-is-too-little"),
        pytest.param(
            ["3"],
            {"labels": REQUIRED | {"koordinator.sh/qosClass": "LSR"}},
            {},
            "CPUs of their own are not taken",
            id="cpus-of-its-own",
        ),
    ],
)
def test_what_cannot_be_taken_is_told(
    placed: list[str], fields: dict[str, Any], config: dict[str, Any], text: str
) -> None:
    made = cluster(*(running(f"p{number}", cpu) for number, cpu in enumerate(placed)), **config)
    status = reserve(made, reservation("r", "4", **fields))
    assert status["phase"] == "Pending"
    assert text in status["conditions"][0]["message"]
    assert charged(made) == sum(1000 * int(cpu) for cpu in placed)


def test_several_pods_are_taken_where_the_reservation_allows_it() -> None:
    made = cluster(*(running(f"p{number}", "1") for number in range(3)))
    status = reserve(made, reservation("r", "4", preAllocationPolicy={"enableMultiple": True}))
    assert len(status["currentOwners"]) == 3
    assert charged(made) == 4000


def test_pods_of_the_cluster_mode_need_no_owner_and_go_by_priority() -> None:
    placed = [
        pod(name, {"cpu": "2"}, labels=MARKED, annotations={PRIORITY: priority}, nodeName="n0")
        for name, priority in (("low", "1"), ("high", "9"))
    ]
    made = cluster(*placed, pre_allocation_cluster_mode=True)
    status = reserve(made, reservation("r", "2", preAllocationPolicy={"mode": "Cluster", "enableMultiple": True}))
    assert [owner["name"] for owner in status["currentOwners"]] == ["high"]


PRIORITY = "pod.koordinator.sh/pre-allocatable-priority"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"labels": {"app": "db"}}, id="no-owner"),
        pytest.param({"labels": {"scheduling.koordinator.sh/reservation-ignored": "true"}}, id="ignores"),
        pytest.param(
            {"annotations": {"scheduling.koordinator.sh/reservation-affinity": '{"name":"other"}'}}, id="wants-another"
        ),
        pytest.param({"annotations": {"scheduling.koordinator.sh/reservation-affinity": "{"}}, id="unreadable"),
    ],
)
def test_pods_that_are_not_for_the_reservation_are_not_taken(fields: dict[str, Any]) -> None:
    made = cluster(running("p", "3", **fields))
    assert reserve(made, reservation("r", "4"))["phase"] == "Pending"


def test_a_pod_is_taken_once() -> None:
    made = cluster(running("p", "3"))
    assert reserve(made, reservation("r", "4"))["phase"] == "Available"
    assert reserve(made, reservation("s", "4"))["phase"] == "Pending"


def test_what_was_taken_is_known_after_a_restart() -> None:
    first = cluster(running("old", "3"))
    status = reserve(first, reservation("r", "4"))
    for late in (False, True):
        made = cluster(*(() if late else (running("old", "3"),)))
        tell(made, reservation("r", "4", status=status), Action.ADD)
        made.tick(T0)
        if late:
            made.on_pod(Action.ADD, running("old", "3"), T0)
        assert charged(made) == 4000
        made.on_pod(Action.DELETE, running("old", "3"), T0)
        assert charged(made) == 4000


def test_a_binding_that_fails_leaves_the_pods_as_they_were() -> None:
    made = cluster(running("old", "3"))
    tell(made, reservation("r", "4"), Action.ADD)
    made.schedule_one(T0)
    assert charged(made) == 4000
    made.bind_failed(made.bindings.popleft(), "no", T0)
    assert charged(made) == 3000
    assert drain(made, T0 + 60) == {"uid-r": "n0"}
    assert charged(made) == 4000


def test_a_taken_pod_that_changes_stays_taken() -> None:
    made = cluster(running("old", "3"))
    reserve(made, reservation("r", "4"))
    made.on_pod(Action.UPDATE, running("old", "3", labels={"app": "other"}), T0 + 1)
    assert charged(made) == 4000


def test_a_new_pod_wakes_a_reservation_that_must_take_one() -> None:
    made = cluster()
    assert reserve(made, reservation("r", "3", labels=REQUIRED))["phase"] == "Pending"
    made.on_pod(Action.ADD, running("other", "1", labels={"app": "db"}), T0 + 10)
    assert made.schedule_one(T0 + 20) is None
    made.on_pod(Action.ADD, running("late", "3"), T0 + 20)
    assert drain(made, T0 + 40) == {"uid-r": "n0"}


def test_of_many_nodes_each_attempt_works_out_a_part() -> None:
    count = MAX_ROWS + 4
    small = [running(f"p{n}-{i}", "1", f"n{n}") for n in range(count - 1) for i in range(4)]
    large = [running(f"large-{i}", "2", f"n{count - 1}") for i in range(2)]
    made = cluster(*small, *large, nodes=count)
    assert reserve(made, reservation("r", "2"))["phase"] == "Pending"
    assert drain(made, T0 + 1) == {"uid-r": f"n{count - 1}"}


def test_room_is_preferred_where_the_settings_say_so() -> None:
    made = cluster(running("old", "1"), prefer_no_pre_allocated_pods=True)
    assert reserve(made, reservation("r", "2"))["currentOwners"] == []
    assert charged(made) == 3000


events = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 2), st.integers(1, 4), st.booleans(), st.booleans()),
    st.tuples(st.just("unreserve"), st.integers(0, 2)),
    st.tuples(st.just("owner"), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("wait"), st.integers(1, 4000)),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_no_node_is_promised_beyond_its_room(history: list[tuple[Any, ...]]) -> None:
    made = cluster(nodes=2)
    now = T0
    alive: dict[int, Any] = {}
    documents: dict[int, dict[str, Any]] = {}
    for event in history:
        now += 1.0
        match event:
            case ("reserve", number, cores, once, several) if number not in documents:
                policy = {"enableMultiple": several}
                documents[number] = reservation(f"r{number}", str(cores), allocateOnce=once, preAllocationPolicy=policy)
                documents[number]["metadata"]["creationTimestamp"] = rfc3339(now)
                tell(made, documents[number], Action.ADD, now)
            case ("unreserve", number) if number in documents:
                tell(made, documents.pop(number), Action.DELETE, now)
            case ("owner", number, cores) if number not in alive:
                alive[number] = web(f"p{number}", str(cores))
                made.on_pod(Action.ADD, alive[number], now)
            case ("delete", number) if number in alive:
                made.on_pod(Action.DELETE, alive.pop(number), now)
            case ("fail",):
                if made.schedule_one(now) is not None and made.bindings:
                    made.bind_failed(made.bindings.popleft(), "no", now)
            case ("wait", seconds):
                now += seconds
                made.tick(now)
        drain(made, now)
        check_room(made)


def check_room(made: Engine) -> None:
    """Per node: what pods have, and what reservations keep beside the pods that they took, is charged and fits."""
    snapshot, found = made.snapshot, made.plugins["Reservation"]
    assert isinstance(found, ReservationPlugin)
    uses = found.ledger.reservations.values()
    for row in range(snapshot.rows_used):
        stand_ins = {each.value.uid for each in uses if each.row == row}
        residents = snapshot.residents[row].items()
        pods = sum(info.requests.get("cpu", 0) for uid, info in residents if uid not in stand_ins)
        kept = 0
        for each in uses:
            if each.row == row:
                used = sum(requests.get("cpu", 0) for _, requests in each.consumers.values())
                kept += max(each.info.requests["cpu"] - used, 0)
        assert snapshot.requested[row, 0] == pods + kept
        assert pods + kept <= snapshot.allocatable[row, 0]
