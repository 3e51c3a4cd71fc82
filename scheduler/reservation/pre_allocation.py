"""Pre-allocation: placed pods that a reservation takes, so that it has their room as they end.

The rules are those of Koordinator's `filterWithPreAllocatablePod` and `filterWithMultiplePreAllocatablePods`: a pod
taken must fit into the reservation, and the reservation must fit the node without the pods taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.kube.objects import Pod
from api.kube.resources import Resources, total
from scheduler.reservation.capacity import score
from scheduler.reservation.matching import AffinityError, refusal, seeker_of
from scheduler.reservation.value import Owner, PreAllocation, Reservation

PRE_ALLOCATED_PODS = "internal.scheduling.koordinator.sh/pre-allocated-pods"
"""Key under which a stand-in's decided annotations have the UIDs of the pods taken; it is written nowhere."""
MAX_SCORE = 100
MAX_PRIORITY_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placed pod that the reservation may take."""

    uid: str
    request: Resources
    priority: int = 0
    """Rank among pods of the mode Cluster, the highest first."""


def taker(reservation: Reservation) -> Reservation:
    """The reservation as the pods to take see it: all of it is free, and its owners are the pods it may take.

    An owner that names nothing stands for every pod and therefore for none to take.
    """
    taking = reservation.pre_allocation or PreAllocation()
    owners = (Owner(),) if taking.cluster else tuple(owner for owner in reservation.owners if owner != Owner())
    return replace(reservation, owners=owners, unschedulable=False, allocatable=reservation.request)


def takeable(
    pod: Pod, request: Resources, reservation: Reservation, node_labels: Mapping[str, str], label: str
) -> bool:
    """Return whether the `taker` may take the pod; `label` marks the pods of the mode Cluster."""
    taking = reservation.pre_allocation or PreAllocation()
    if taking.cluster and pod.metadata.labels.get(label) != "true":
        return False
    try:
        seeker = seeker_of(pod, request)
    except AffinityError:
        return False
    return not seeker.ignores and refusal(seeker, reservation, node_labels) is None


def priority_of(text: str) -> int:
    """Priority of a pod in the mode Cluster; 0 for what is no whole number."""
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) <= MAX_PRIORITY_DIGITS else 0


def pods_to_take(
    request: Resources,
    reservation: Reservation,
    candidates: Iterable[Candidate],
    free: Resources,
    *,
    prefer_none: bool = False,
) -> tuple[Candidate, ...] | None:
    """The pods that the reservation takes on a node: () where it fits without any, None where it does not fit.

    `request` is what the reservation asks of the node, `free` what all pods leave of it (it may be negative). Where
    both would do, pods are taken unless `prefer_none`.
    """
    taking = reservation.pre_allocation or PreAllocation()
    alone = not taking.required and _fits(request, free, ())
    if alone and prefer_none:
        return ()
    names = (reservation.restricted_names or frozenset(reservation.request)) & frozenset(reservation.request)
    sharing = [each for each in candidates if names & each.request.keys()]
    if taking.multiple:
        taken = _several(request, reservation, _ordered(reservation, sharing, taking.cluster), free, names)
    else:
        ranked = _ordered(reservation, sharing, cluster=False)
        taken = next(
            ((each,) for each in ranked if _holds(reservation, names, (each,)) and _fits(request, free, (each,))), ()
        )
    return taken if taken or alone else None


def worth(reservation: Reservation, taken: Sequence[Candidate]) -> int:
    """0 to 100 for a node: of several pods the fewer the better; one pod counts by how much it fills."""
    taking = reservation.pre_allocation or PreAllocation()
    if taking.multiple:
        return MAX_SCORE // (1 + len(taken))
    return score(taken[0].request, _whole(reservation)) if taken else 0


def _several(
    request: Resources, reservation: Reservation, ranked: Sequence[Candidate], free: Resources, names: frozenset[str]
) -> tuple[Candidate, ...]:
    """As many pods as it takes, in their order, less those with which the others would not fit the reservation."""
    taken: tuple[Candidate, ...] = ()
    for each in ranked:
        if not _holds(reservation, names, (*taken, each)):
            continue
        taken = (*taken, each)
        if _fits(request, free, taken):
            return taken
    return ()


def _ordered(reservation: Reservation, candidates: Iterable[Candidate], cluster: bool) -> list[Candidate]:
    """The pods by declared priority, or the fullest first; of equals by priority, then UID."""
    if cluster:
        return sorted(candidates, key=lambda each: (-each.priority, each.uid))
    whole = _whole(reservation)
    return sorted(candidates, key=lambda each: (-score(each.request, whole), -each.priority, each.uid))


def _whole(reservation: Reservation) -> Reservation:
    """The reservation with all that it asks for."""
    return (
        reservation
        if reservation.allocatable == reservation.request
        else replace(reservation, allocatable=reservation.request)
    )


def _holds(reservation: Reservation, names: frozenset[str], taken: Sequence[Candidate]) -> bool:
    used = total(each.request for each in taken)
    return all(used.get(name, 0) <= reservation.request[name] for name in names)


def _fits(request: Resources, free: Resources, taken: Sequence[Candidate]) -> bool:
    given = total(each.request for each in taken)
    return all(amount <= free.get(name, 0) + given.get(name, 0) for name, amount in request.items() if amount > 0)
