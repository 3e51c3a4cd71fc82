"""The pod that stands in for a reservation: it is scheduled like any pod and holds the reserved room."""

from collections.abc import Mapping
from typing import Any

import msgspec

from api.crds import Reservation as ReservationObject
from api.crds.placement import ReservationOwner
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Pod
from api.kube.resources import parse_resources
from api.kube.times import duration_seconds, epoch_seconds
from api.protocol import LABEL_PRE_ALLOCATION_REQUIRED, LABEL_PRIORITY
from scheduler.cluster_state.podinfo import requests_of
from scheduler.reservation.value import (
    DEFAULT_TTL_SECONDS,
    ControllerMatch,
    ObjectMatch,
    Owner,
    Policy,
    PreAllocation,
    Reservation,
    ReservationPhase,
)

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
RESERVATION_NAME = "scheduling.koordinator.sh/reservation-name"
RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
LABEL_ORDER = "scheduling.koordinator.sh/reservation-order"
HIGHEST_PRIORITY = 2**31 - 1


class RestrictedOptions(msgspec.Struct, frozen=True):
    """Resources that the Restricted policy looks at."""

    resources: list[str] = msgspec.field(default_factory=list)


def stand_in(reservation: ReservationObject) -> Pod:
    """The pod that holds the room: the template's, named and identified by the reservation's UID.

    Labels and annotations of the reservation go before the template's. Raises msgspec.ValidationError when the
    template is no pod.
    """
    template: Mapping[str, Any] = reservation.spec.template or {}
    meta, inner = reservation.metadata, template.get("metadata") or {}
    labels = {**(inner.get("labels") or {}), **meta.labels}
    annotations = {**(inner.get("annotations") or {}), **meta.annotations}
    spec = dict(template.get("spec") or {})
    pinned = spec.pop("nodeName", "")
    if pinned:
        spec["affinity"] = _pinned(pinned)
    priority = labels.get(LABEL_PRIORITY, "")
    spec["priority"] = min(int(priority[:19]), HIGHEST_PRIORITY) if priority.isdecimal() else HIGHEST_PRIORITY
    spec["preemptionPolicy"] = "Never"
    document = {
        "metadata": {
            "name": meta.uid,
            "namespace": inner.get("namespace") or "default",
            "uid": meta.uid,
            "creationTimestamp": meta.creation_timestamp,
            "labels": labels,
            "annotations": {**annotations, RESERVE_POD: "true", RESERVATION_NAME: meta.name},
        },
        "spec": spec,
    }
    return msgspec.convert(document, Pod)


def _pinned(node: str) -> dict[str, Any]:
    """Affinity instead of a node name: a pod with a node name would count as bound."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def value_of(reservation: ReservationObject) -> Reservation:
    """The object as the rules see it.

    Raises QuantityError or msgspec.ValidationError when amounts or the template cannot be read.
    """
    meta, spec, status = reservation.metadata, reservation.spec, reservation.status
    pod = stand_in(reservation)
    request = requests_of(pod)
    phase = ReservationPhase(status.phase) if status.phase else ReservationPhase.PENDING
    allocatable = parse_resources(status.allocatable) or (request if phase is ReservationPhase.AVAILABLE else {})
    order = meta.labels.get(LABEL_ORDER, "")
    ttl = duration_seconds(spec.ttl) if spec.ttl else None
    return Reservation(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        owners=tuple(owner_of(owner) for owner in spec.owners),
        request=request,
        created_seconds=epoch_seconds(meta.creation_timestamp) or 0.0,
        ttl_seconds=DEFAULT_TTL_SECONDS if ttl is None else ttl,
        expires_seconds=epoch_seconds(spec.expires),
        allocate_once=spec.allocate_once is not False,
        policy=Policy(spec.allocate_policy),
        pre_allocation=_pre_allocation(reservation, pod) if spec.pre_allocation else None,
        restricted_names=_restricted(meta.annotations.get(RESTRICTED_OPTIONS)),
        unschedulable=spec.unschedulable,
        taints=tuple(spec.taints),
        order=int(order) if order.isdecimal() and len(order) < 19 else 0,
        phase=phase,
        node=status.node_name,
        allocatable=allocatable,
    )


def _pre_allocation(reservation: ReservationObject, pod: Pod) -> PreAllocation:
    policy = reservation.spec.pre_allocation_policy
    return PreAllocation(
        cluster=policy is not None and policy.mode == "Cluster",
        multiple=policy is not None and policy.enable_multiple,
        required=pod.metadata.labels.get(LABEL_PRE_ALLOCATION_REQUIRED) == "true",
    )


def owner_of(owner: ReservationOwner) -> Owner:
    """An owner as the rules see it."""
    of_object, of_controller = owner.object, owner.controller
    return Owner(
        None
        if of_object is None
        else ObjectMatch(of_object.uid, of_object.name, of_object.namespace, of_object.api_version),
        None
        if of_controller is None
        else ControllerMatch(
            of_controller.uid,
            of_controller.name,
            of_controller.kind,
            of_controller.api_version,
            of_controller.namespace,
        ),
        owner.label_selector,
    )


def _restricted(text: str | None) -> frozenset[str]:
    if not text:
        return frozenset()
    try:
        return frozenset(decode_annotation(text, RestrictedOptions).resources)
    except AnnotationError:
        return frozenset()
