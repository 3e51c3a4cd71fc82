"""The ledger of reservations against a bare snapshot: charges given back in any order of events."""

from typing import Any

import msgspec
import pytest

from api.crds import Reservation as ReservationObject
from cluster.resources import Key
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.reservation import ReservationPlugin
from scheduler.reservation.ledger import RESERVATIONS, ReservationLedger
from tests.schedobjects import engine, node, pod

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def document(cpu: str, owner: dict[str, Any] | None = None, **status: Any) -> ReservationObject:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return msgspec.convert(
        {
            "metadata": {"name": "r", "uid": "uid-r"},
            "spec": {"template": {"spec": {"containers": [container]}}, "owners": [owner or {}], "allocateOnce": False},
            "status": {"phase": "Available", "nodeName": "n0", **status},
        },
        ReservationObject,
    )


def made() -> tuple[Engine, ReservationLedger]:
    built = engine([node("n0")], kinds={"reservation": ReservationPlugin})
    plugin = built.plugins["Reservation"]
    assert isinstance(plugin, ReservationPlugin)
    return built, plugin.ledger


def consumer(name: str, cpu: str) -> Any:
    return pod(name, {"cpu": cpu}, annotations={ALLOCATED: '{"name":"r","uid":"uid-r"}'})


def bound(built: Engine, item: Any) -> PodInfo:
    info = built.classes.info(item)
    info.believe()
    return info


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("reservation", "a", "b"), id="reservation first"),
        pytest.param(("a", "b", "reservation"), id="consumers first"),
        pytest.param(("a", "reservation", "b"), id="between them"),
    ],
)
def test_any_order_charges_the_same(order: tuple[str, ...]) -> None:
    built, ledger = made()
    pods = {"a": consumer("a", "1"), "b": consumer("b", "2500m")}
    for step in order:
        if step == "reservation":
            ledger.take(document("3"))
            ledger.place_known()
        else:
            built.snapshot.add_pod(bound(built, pods[step]), 0)
    requested = built.snapshot.requested[0]
    assert requested[0] == 3500
    assert requested[1] == 1 << 30
    built.snapshot.remove_pod("uid-a")
    assert requested[0] == 3000
    built.snapshot.remove_pod("uid-b")
    assert requested[0] == 3000
    assert ledger.reservations["uid-r"].current.allocated.get("cpu", 0) == 0
    ledger.drop("r")
    assert not requested.any()
    assert not built.snapshot.nonzero.any()


def test_suppositions_leave_no_trace() -> None:
    built, ledger = made()
    ledger.take(document("3"))
    ledger.place_known()
    built.snapshot.add_pod(bound(built, consumer("a", "1")), 0)
    before = built.snapshot.requested.copy()
    with built.snapshot.trial() as trial:
        trial.remove("uid-a")
        trial.remove("uid-r")
        assert not built.snapshot.requested.any()
    assert (built.snapshot.requested == before).all()


def test_a_status_that_was_lost_is_written_again() -> None:
    built, ledger = made()
    item = document("3")
    built.on_object(_event(item), 0.0)
    ledger.now = 1.0
    assert len(list(ledger.writes())) == 1
    ledger.now = 10.9
    assert not list(ledger.writes())
    ledger.now = 11.0
    assert len(list(ledger.writes())) == 1


def _event(item: ReservationObject) -> Any:
    return ObjectEvent(RESERVATIONS, Action.ADD, Key("", "r"), None, item)


@pytest.mark.parametrize("first", [pytest.param(True, id="reservation first"), pytest.param(False, id="pod first")])
@pytest.mark.parametrize(
    ("node_of_pod", "owner"),
    [
        pytest.param("n1", {}, id="another-node"),
        pytest.param("n0", {"object": {"name": "b"}}, id="no-owner"),
        pytest.param("n0", {"labelSelector": {"matchLabels": {"app": "a"}}}, id="no-owner-by-label"),
    ],
)
def test_a_reservation_is_drawn_from_by_owners_on_its_node_alone(
    first: bool, node_of_pod: str, owner: dict[str, Any]
) -> None:
    built, ledger = made()
    built.on_node(Action.ADD, node("n1"), 0.0)
    steps = [lambda: ledger.take(document("3", owner)), ledger.place_known]
    liar = bound(built, consumer("a", "1"))
    row = built.snapshot.row(node_of_pod)
    assert row is not None
    steps.insert(2 if first else 0, lambda: built.snapshot.add_pod(liar, row))
    for step in steps:
        step()
    assert not ledger.reservations["uid-r"].consumers
    assert built.snapshot.requested[0, 0] == (4000 if node_of_pod == "n0" else 3000)
