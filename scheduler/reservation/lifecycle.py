"""Phases of a reservation, from time, its node and the pods that use it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from api.kube.meta import Condition
from api.kube.resources import Resources, total
from scheduler.reservation.value import Reservation, ReservationPhase

GC_SECONDS = 24 * 3600.0
SYNC_SECONDS = (3.0, 15.0)
"""The next look at a reservation is never sooner or later than this."""


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """A reservation after a transition, with the conditions to write; equal values mean nothing to write."""

    reservation: Reservation
    conditions: tuple[Condition, ...] = ()


def problem(reservation: Reservation, *, has_template: bool) -> str:
    """Return why the object is invalid, naming the field; empty when it is fine."""
    if not has_template:
        return "spec.template is missing: say what to reserve"
    if not reservation.owners:
        return "spec.owners is empty: say who may use the reservation"
    if reservation.ttl_seconds is None and reservation.expires_seconds is None:
        return "neither spec.ttl nor spec.expires is set: say when the reservation ends (ttl 0s: never)"
    return ""


def bound(reservation: Reservation, node: str, resized: Resources | None = None) -> ReservationChange:
    """The reserve pod found its node: the reservation is available."""
    available = replace(
        reservation, phase=ReservationPhase.AVAILABLE, node=node, allocatable=resized or dict(reservation.request)
    )
    return ReservationChange(
        available,
        (
            Condition(type="Scheduled", status="True", reason="Scheduled"),
            Condition(type="Ready", status="True", reason="Available"),
        ),
    )


def unschedulable(reservation: Reservation, message: str) -> ReservationChange:
    """No node yet, or an invalid object: it stays pending and says why."""
    return ReservationChange(
        reservation,
        (Condition(type="Scheduled", status="False", reason="Unschedulable", message=message),),
    )


def followed(
    reservation: Reservation, *, now: float, node_exists: bool, consumers: Mapping[str, Resources]
) -> ReservationChange:
    """The reservation as time and pods have it: usage counted anew, ended where due.

    `consumers` maps the keys of living pods that hold this reservation to their requests; usage is always
    counted from them, so nothing leaks over a restart. Terminal phases never change.
    """
    if reservation.phase.terminal:
        return ReservationChange(reservation)
    counted = _counted(reservation, consumers)
    if counted.phase is ReservationPhase.AVAILABLE and counted.allocate_once and consumers:
        done = replace(counted, phase=ReservationPhase.SUCCEEDED)
        return ReservationChange(done, (Condition(type="Ready", status="False", reason="Succeeded"),))
    end = counted.end_seconds
    if end is not None and now >= end:
        return _failed(counted, "its time is over")
    if counted.node and not node_exists:
        return _failed(counted, f"node {counted.node} is gone")
    return ReservationChange(counted)


def _counted(reservation: Reservation, consumers: Mapping[str, Resources]) -> Reservation:
    if reservation.phase is not ReservationPhase.AVAILABLE:
        return reservation
    used = total(consumers.values())
    allocated = {name: used.get(name, 0) for name in reservation.allocatable}
    return replace(reservation, consumers=frozenset(consumers), allocated=allocated)


def _failed(reservation: Reservation, message: str) -> ReservationChange:
    condition = Condition(type="Ready", status="False", reason="Expired", message=message)
    return ReservationChange(replace(reservation, phase=ReservationPhase.FAILED), (condition,))


def next_look_seconds(reservations: Iterable[Reservation], now: float) -> float:
    """Time to wait before following again: until the nearest end, within the bounds."""
    ends = [each.end_seconds for each in reservations if not each.phase.terminal]
    nearest = min((end - now for end in ends if end is not None), default=SYNC_SECONDS[1])
    return min(max(nearest, SYNC_SECONDS[0]), SYNC_SECONDS[1])


def collectable(reservation: Reservation, ended_seconds: float, now: float, gc_seconds: float = GC_SECONDS) -> bool:
    """True when a terminated reservation may be deleted."""
    return reservation.phase.terminal and now - ended_seconds >= gc_seconds
