"""The ledger of reservations against a bare snapshot: charges given back in any order of events."""

from typing import Any

import msgspec
import pytest

from api.crds import Reservation as ReservationObject
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.reservation import ReservationPlugin
from scheduler.reservation.ledger import RESERVATIONS, ReservationLedger
from tests.schedobjects import engine, node, pod

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def document(cpu: str, **status: Any) -> ReservationObject:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return msgspec.convert(
        {
            "metadata": {"name": "r", "uid": "uid-r"},
            "spec": {"template": {"spec": {"containers": [container]}}, "owners": [{}], "allocateOnce": False},
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
            built.snapshot.add_pod(built.classes.info(pods[step]), 0)
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
    built.snapshot.add_pod(built.classes.info(consumer("a", "1")), 0)
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
