"""Pods that act as reservations: a running pod that keeps its room for the owners that its annotation names."""

from api.crds.placement import ReservationOwner
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Pod
from api.kube.resources import PODS, Resources
from api.kube.times import epoch_seconds
from api.protocol import (
    ANNOTATION_RESERVATION_CURRENT_OWNER,
    ANNOTATION_RESERVATION_OWNERS,
    LABEL_OPERATING_MODE,
)
from scheduler.reservation.standin import owner_of
from scheduler.reservation.value import Owner, Policy, Reservation, ReservationPhase


def operates(pod: Pod) -> bool:
    """Return whether the pod says that it acts as a reservation."""
    return pod.metadata.labels.get(LABEL_OPERATING_MODE) == "Reservation"


def serves(pod: Pod) -> bool:
    """Return whether the room of such a pod may be used: it is running and ready, stays, and has no owner yet."""
    return (
        pod.status.phase == "Running"
        and not pod.metadata.deletion_timestamp
        and ANNOTATION_RESERVATION_CURRENT_OWNER not in pod.metadata.annotations
        and any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
    )


def value_of_pod(pod: Pod, node: str, requests: Resources) -> Reservation:
    """The pod as the rules see a reservation: for one owner of its own namespace, until the pod ends.

    The protocol lets such a pod name owners anywhere, which would draw the pods of others to its node.
    """
    meta = pod.metadata
    room = {name: amount for name, amount in requests.items() if name != PODS}
    return Reservation(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        owners=_owners(meta.annotations.get(ANNOTATION_RESERVATION_OWNERS, "")),
        namespace=meta.namespace,
        request=room,
        created_seconds=epoch_seconds(meta.creation_timestamp) or 0.0,
        ttl_seconds=0.0,
        allocate_once=True,
        policy=Policy.ALIGNED,
        phase=ReservationPhase.AVAILABLE,
        node=node,
        allocatable=room,
    )


def _owners(text: str) -> tuple[Owner, ...]:
    """The owners that an annotation names; none where it cannot be read, nor for entries that name nothing."""
    if not text:
        return ()
    try:
        entries = decode_annotation(text, list[ReservationOwner])
    except AnnotationError:
        return ()
    return tuple(owner for owner in map(owner_of, entries) if owner != Owner())
