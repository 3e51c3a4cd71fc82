"""Pods of the operating mode Reservation in an engine: their room is for the owners that they name."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine import Engine
from scheduler.framework import Action
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.reservation import ReservationPlugin
from tests.schedobjects import drain, engine, node, pod

KINDS = {"reservation": ReservationPlugin, "noderesourcesfit": NodeResourcesFit}
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
CURRENT = "scheduling.koordinator.sh/reservation-current-owner"
OWNERS = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
T0 = 1000.0


def keeper(name: str = "keeper", cpu: str = "3", **fields: Any) -> Any:
    """A running pod that keeps its room for others."""
    owners = fields.pop("owners", OWNERS)
    given = {
        "labels": {"scheduling.koordinator.sh/operating-mode": "Reservation", **fields.pop("labels", {})},
        "annotations": {
            "scheduling.koordinator.sh/reservation-owners": owners if isinstance(owners, str) else json.dumps(owners),
            **fields.pop("annotations", {}),
        },
        "nodeName": "n0",
        "phase": "Running",
        "status": READY,
    }
    return pod(name, {"cpu": cpu}, **{**given, **fields})


def web(name: str, cpu: str = "3", **fields: Any) -> Any:
    return pod(name, {"cpu": cpu}, labels={"app": "web", **fields.pop("labels", {})}, **fields)


def cluster(*placed: Any) -> Engine:
    return engine([node("n0")], placed, kinds=KINDS)


def submit(made: Engine, *pods: Any, now: float = T0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def test_its_room_goes_to_one_owner_alone() -> None:
    made = cluster(keeper())
    assert submit(made, pod("stranger", {"cpu": "2"})) == {}
    assert submit(made, web("first")) == {"first": "n0"}
    drawn = json.loads(made.snapshot.pods["uid-first"].info.patch[ALLOCATED])
    assert drawn == {"name": "keeper", "uid": "uid-keeper"}
    assert submit(made, web("second")) == {}


def test_keeper_and_owner_are_both_charged() -> None:
    """The kubelet counts both; a node that looked free would get pods that it refuses."""
    made = cluster(keeper())
    submit(made, web("owner"))
    assert made.snapshot.requested[0, 0] == 6000
    assert submit(made, pod("stranger", {"cpu": "1"})) == {}
    made.on_pod(Action.DELETE, keeper(), T0 + 1)
    assert made.snapshot.requested[0, 0] == 3000


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"phase": "Pending"}, id="not-running"),
        pytest.param({"status": {}}, id="not-ready"),
        pytest.param({"deletion_timestamp": "2026-01-01T00:00:00Z"}, id="leaving"),
        pytest.param({"annotations": {CURRENT: '{"uid":"u"}'}}, id="in-use"),
        pytest.param({"namespace": "other"}, id="another-namespace"),
        pytest.param({"owners": [{"labelSelector": {"matchLabels": {"app": "db"}}}]}, id="no-owner"),
        pytest.param({"owners": [{}]}, id="an-owner-that-names-nothing"),
        pytest.param({"owners": []}, id="no-owners"),
        pytest.param({"owners": "{"}, id="unreadable-owners"),
        pytest.param({"owners": '[{"labelSelector":{"matchExpressions":[{"key":"app","operator":"?"}]}}]'}, id="junk"),
        pytest.param({"labels": {"scheduling.koordinator.sh/operating-mode": "Runnable"}}, id="runnable"),
        pytest.param({"labels": {"koordinator.sh/qosClass": "LSR"}}, id="cpus-of-its-own"),
    ],
)
def test_a_pod_that_does_not_serve_keeps_its_room(fields: dict[str, Any]) -> None:
    made = cluster(keeper(**fields))
    assert submit(made, web("owner")) == {}


def test_a_pod_that_becomes_ready_wakes_its_owners() -> None:
    made = cluster(keeper(status={}))
    assert submit(made, web("owner")) == {}
    made.on_pod(Action.UPDATE, keeper(), T0 + 20)
    assert drain(made, T0 + 40) == {"owner": "n0"}


def test_owners_that_ignore_reservations_get_no_room_that_is_in_use() -> None:
    made = cluster(keeper())
    assert submit(made, web("owner", labels={"scheduling.koordinator.sh/reservation-ignored": "true"})) == {}


def test_an_affinity_asks_for_the_pod_by_name() -> None:
    wanted = {"scheduling.koordinator.sh/reservation-affinity": json.dumps({"name": "keeper"})}
    made = cluster(keeper())
    assert submit(made, web("owner", "1", annotations=wanted)) == {"owner": "n0"}


@pytest.mark.parametrize("keeper_first", [pytest.param(True, id="keeper-first"), pytest.param(False, id="owner-first")])
def test_its_owner_is_known_after_a_restart(keeper_first: bool) -> None:
    body = json.dumps({"name": "keeper", "uid": "uid-keeper"})
    pods = [keeper(), web("owner", "1", nodeName="n0", annotations={ALLOCATED: body})]
    made = cluster(*(pods if keeper_first else reversed(pods)))
    assert submit(made, web("second")) == {}
    made.on_pod(Action.DELETE, pods[1], T0 + 1)
    assert drain(made, T0 + 60) == {"second": "n0"}


def test_no_status_is_written_for_it() -> None:
    made = cluster(keeper())
    submit(made, web("owner"))
    made.tick(T0 + 1)
    assert not made.writes


def test_one_that_was_placed_here_serves_once_it_runs() -> None:
    made = cluster()
    assert submit(made, keeper(nodeName="", phase="Pending", status={})) == {"keeper": "n0"}
    assert submit(made, web("owner")) == {}
    made.on_pod(Action.UPDATE, keeper(), T0 + 20)
    assert drain(made, T0 + 40) == {"owner": "n0"}


events = st.one_of(
    st.tuples(st.just("keeper"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("owner"), st.integers(3, 6)),
    st.tuples(st.just("delete"), st.integers(0, 6)),
    st.tuples(st.just("relabel"), st.integers(0, 2)),
    st.tuples(st.just("node")),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_every_pod_is_charged_whatever_comes_and_goes(history: list[tuple[Any, ...]]) -> None:
    made = cluster()
    now = T0
    alive: dict[int, Any] = {}
    for event in history:
        now += 20.0
        match event:
            case ("keeper", number, ready):
                alive[number] = keeper(f"p{number}", "1", status=READY if ready else {})
                made.on_pod(Action.UPDATE, alive[number], now)
            case ("owner", number) if number not in alive:
                alive[number] = web(f"p{number}", "1")
                made.on_pod(Action.ADD, alive[number], now)
            case ("delete", number) if number in alive:
                made.on_pod(Action.DELETE, alive.pop(number), now)
            case ("relabel", number) if number in alive:
                alive[number] = keeper(f"p{number}", "1", labels={"tier": str(now)})
                made.on_pod(Action.UPDATE, alive[number], now)
            case ("node",):
                made.on_node(Action.UPDATE, node("n0", labels={"rack": str(now)}), now)
        with made.snapshot.trial() as trial:
            for uid in list(made.snapshot.pods):
                trial.remove(uid)
            assert not made.snapshot.requested.any()
        drain(made, now)
        assert made.snapshot.requested[0, 0] == 1000 * len(made.snapshot.pods)
        uses = plugin(made).ledger.reservations.values()
        assert all(len(use.consumers) <= 1 for use in uses)


def plugin(made: Engine) -> ReservationPlugin:
    found = made.plugins["Reservation"]
    assert isinstance(found, ReservationPlugin)
    return found
