"""Fit of a pod into a reservation, its score, and the choice among several."""

from collections.abc import Mapping, Sequence

from api.kube.resources import Resources
from api.protocol import LABEL_QOS_CLASS
from api.qos import QoSClass
from scheduler.devices.request import device_names
from scheduler.reservation.value import Policy, Reservation


def shortfall(request: Resources, free: Resources, reservation: Reservation) -> str | None:
    """The first resource that keeps the pod out of the reservation; None when it fits.

    `free` is what the node has left for pods without a reservation (it may be negative). The reservation's
    remaining amount comes on top; under the Restricted policy the reserved resources must come from it alone.
    """
    remaining = reservation.remaining
    for name, amount in request.items():
        if amount > 0 and amount > free.get(name, 0) + remaining.get(name, 0):
            return name
    if reservation.policy is Policy.RESTRICTED:
        names = reservation.restricted_names or frozenset(reservation.allocatable)
        for name in sorted(names & set(request)):
            if request[name] > remaining.get(name, 0):
                return name
    return None


def asks_amounts_alone(request: Resources, labels: Mapping[str, str]) -> bool:
    """Return whether a pod needs nothing of a node beside amounts: no device, no CPUs of its own.

    Devices and CPU sets cannot be handed over while the pod that has them still runs.
    """
    return not device_names(request) and labels.get(LABEL_QOS_CLASS) not in (QoSClass.LSE, QoSClass.LSR)


def conflicting_policies(reservations: Sequence[Reservation]) -> bool:
    """True when the default policy shares a node with another one, which the protocol forbids."""
    policies = {reservation.policy for reservation in reservations}
    return Policy.DEFAULT in policies and len(policies) > 1


def score(request: Resources, reservation: Reservation) -> int:
    """0 to 100: how full the pod makes the reservation, mean over its resources; over-full counts 0."""
    shares = [
        _fullness(reservation.allocated.get(name, 0) + request.get(name, 0), capacity)
        for name, capacity in reservation.allocatable.items()
        if capacity > 0
    ]
    return sum(shares) // len(shares) if shares else 0


def _fullness(amount: int, capacity: int) -> int:
    return 0 if amount > capacity else 100 * amount // capacity


def nominate(request: Resources, candidates: Sequence[Reservation]) -> Reservation | None:
    """The reservation to use on one node: lowest order above zero, then the best score, then the name."""
    ordered = [reservation for reservation in candidates if reservation.order > 0]
    if ordered:
        return min(ordered, key=lambda each: (each.order, each.name))
    return min(candidates, key=lambda each: (-score(request, each), each.name), default=None)


ORDER_SCORE = 1000
"""Raw score of the node that holds the reservation with the lowest order."""
