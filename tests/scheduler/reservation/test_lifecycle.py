"""Phases, conditions and accounting; what is over stays over, and usage follows from the living pods."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.reservation.lifecycle import (
    bound,
    collectable,
    followed,
    next_look_seconds,
    problem,
    unschedulable,
)
from scheduler.reservation.value import Owner, Reservation, ReservationPhase

NEW = Reservation("r", owners=(Owner(),), request={"cpu": 4000}, created_seconds=1000.0)
DAY = 24 * 3600.0
HELD = bound(NEW, "n1").reservation


def test_binding_makes_it_available() -> None:
    change = bound(NEW, "n1")
    assert (change.reservation.phase, change.reservation.node) == (ReservationPhase.AVAILABLE, "n1")
    assert change.reservation.allocatable == {"cpu": 4000}
    assert [(c.type, c.status, c.reason) for c in change.conditions] == [
        ("Scheduled", "True", "Scheduled"),
        ("Ready", "True", "Available"),
    ]
    assert bound(NEW, "n1", resized={"cpu": 5000}).reservation.allocatable == {"cpu": 5000}


@pytest.mark.parametrize(
    ("reservation", "now", "node_exists", "consumers", "phase"),
    [
        pytest.param(NEW, 1001.0, True, {}, ReservationPhase.PENDING, id="still pending"),
        pytest.param(NEW, 1000.0 + DAY, True, {}, ReservationPhase.FAILED, id="pending past the ttl"),
        pytest.param(HELD, 999.0 + DAY, True, {}, ReservationPhase.AVAILABLE, id="a second before the ttl"),
        pytest.param(HELD, 1000.0 + DAY, True, {}, ReservationPhase.FAILED, id="the ttl"),
        pytest.param(replace(HELD, ttl_seconds=0), 1e12, True, {}, ReservationPhase.AVAILABLE, id="ttl 0 never ends"),
        pytest.param(
            replace(HELD, expires_seconds=1500.0), 1500.0, True, {}, ReservationPhase.FAILED, id="expires first"
        ),
        pytest.param(
            replace(HELD, expires_seconds=1e9), 2 * DAY, True, {}, ReservationPhase.AVAILABLE, id="ttl is moot"
        ),
        pytest.param(HELD, 1001.0, False, {}, ReservationPhase.FAILED, id="the node is gone"),
        pytest.param(HELD, 1001.0, True, {"p": {"cpu": 1}}, ReservationPhase.SUCCEEDED, id="used once"),
        pytest.param(
            replace(HELD, allocate_once=False), 1001.0, True, {"p": {"cpu": 1}}, ReservationPhase.AVAILABLE, id="shared"
        ),
        pytest.param(
            replace(HELD, phase=ReservationPhase.SUCCEEDED),
            1e12,
            False,
            {},
            ReservationPhase.SUCCEEDED,
            id="success outlives the ttl",
        ),
        pytest.param(
            replace(HELD, phase=ReservationPhase.FAILED),
            0.0,
            True,
            {"p": {}},
            ReservationPhase.FAILED,
            id="failed for good",
        ),
    ],
)
def test_phases(
    reservation: Reservation,
    now: float,
    node_exists: bool,
    consumers: dict[str, dict[str, int]],
    phase: ReservationPhase,
) -> None:
    assert followed(reservation, now=now, node_exists=node_exists, consumers=consumers).reservation.phase is phase


def test_every_end_and_every_refusal_has_a_condition() -> None:
    over = followed(HELD, now=1e9, node_exists=True, consumers={})
    assert [(c.reason, c.message) for c in over.conditions] == [("Expired", "its time is over")]
    gone = followed(HELD, now=1001.0, node_exists=False, consumers={})
    assert [(c.reason, c.message) for c in gone.conditions] == [("Expired", "node n1 is gone")]
    refused = unschedulable(NEW, "no node has 4 free cores").conditions[0]
    assert (refused.type, refused.status, refused.reason) == ("Scheduled", "False", "Unschedulable")
    assert refused.message == "no node has 4 free cores"


@pytest.mark.parametrize(
    ("reservation", "has_template", "expected"),
    [
        pytest.param(NEW, True, "", id="fine"),
        pytest.param(NEW, False, "spec.template", id="no template"),
        pytest.param(replace(NEW, owners=()), True, "spec.owners", id="no owners"),
        pytest.param(replace(NEW, ttl_seconds=None), True, "spec.ttl", id="no end"),
        pytest.param(replace(NEW, ttl_seconds=None, expires_seconds=5.0), True, "", id="expires is an end"),
    ],
)
def test_problems_name_the_field(reservation: Reservation, has_template: bool, expected: str) -> None:
    found = problem(reservation, has_template=has_template)
    assert bool(found) == bool(expected)
    assert expected in found


requests = st.dictionaries(st.sampled_from(["cpu", "gpu", "disk"]), st.integers(0, 5000), max_size=3)


@given(st.dictionaries(st.text("abc", min_size=1), requests, max_size=6))
def test_usage_is_counted_anew_from_the_pods(consumers: dict[str, dict[str, int]]) -> None:
    stale = replace(HELD, allocate_once=False, allocated={"cpu": 3999, "gpu": 7}, consumers=frozenset({"long gone"}))
    counted = followed(stale, now=1001.0, node_exists=True, consumers=consumers).reservation
    assert counted.consumers == set(consumers)
    assert counted.allocated == {"cpu": sum(r.get("cpu", 0) for r in consumers.values())}
    assert all(amount >= 0 for amount in counted.remaining.values())


def test_times_between_looks() -> None:
    assert next_look_seconds([], 0.0) == 15.0
    assert next_look_seconds([replace(NEW, expires_seconds=1001.0)], 1000.0) == 3.0
    assert next_look_seconds([replace(NEW, expires_seconds=1007.0)], 1000.0) == 7.0
    assert next_look_seconds([replace(NEW, phase=ReservationPhase.FAILED, expires_seconds=1.0)], 1000.0) == 15.0
    ended = replace(NEW, phase=ReservationPhase.SUCCEEDED)
    assert collectable(ended, 0.0, DAY)
    assert not collectable(ended, 1.0, DAY)
    assert not collectable(NEW, 0.0, 9 * DAY)


def test_usable() -> None:
    assert HELD.usable(1001.0)
    assert not HELD.usable(1000.0 + DAY)
    assert not NEW.usable(1001.0)
    assert not replace(HELD, consumers=frozenset("p")).usable(1001.0)
    assert replace(HELD, allocate_once=False, consumers=frozenset("p")).usable(1001.0)
