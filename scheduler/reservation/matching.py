"""Matching of pods with reservations: the rules in the protocol's order, each refusal with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Pod, Taint, Toleration
from api.kube.resources import Resources
from api.kube.selectors import NodeSelectorTerm, label_selector_matches, node_term_matches
from api.kube.taints import HARD_EFFECTS, tolerated
from api.protocol import (
    ANNOTATION_EXACT_MATCH_RESERVATION,
    ANNOTATION_RESERVATION_AFFINITY,
    LABEL_RESERVATION_IGNORED,
    TAINT_UNSCHEDULABLE,
)
from scheduler.reservation.value import ControllerMatch, ObjectMatch, Owner, Reservation

_UNSCHEDULABLE = Taint(key=TAINT_UNSCHEDULABLE, effect="NoSchedule")


class SelectorTerms(msgspec.Struct, frozen=True, rename="camel"):
    """Terms over reservation labels, any of which may hold."""

    reservation_selector_terms: list[NodeSelectorTerm] = []


class ReservationAffinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The pod's reservation affinity: with it, a reservation is a must."""

    name: str = ""
    required: SelectorTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class ExactMatch(msgspec.Struct, frozen=True, rename="camel"):
    """Resources of which the pod must want exactly what is reserved."""

    resource_names: list[str] = []


@dataclass(frozen=True, slots=True)
class Seeker:
    """A pod looking for a reservation, its keys decoded once."""

    pod: Pod
    request: Resources
    affinity: ReservationAffinity | None = None
    exact: tuple[str, ...] = ()
    ignores: bool = False


class AffinityError(ValueError):
    """An annotation about reservations cannot be read; the message names pod, key and fault."""


def seeker_of(pod: Pod, request: Resources) -> Seeker:
    """Decode what a pod says about reservations. AffinityError when an annotation is malformed."""
    keys = pod.metadata.annotations
    affinity = exact = None
    try:
        if raw := keys.get(ANNOTATION_RESERVATION_AFFINITY):
            affinity = decode_annotation(raw, ReservationAffinity)
        if raw := keys.get(ANNOTATION_EXACT_MATCH_RESERVATION):
            exact = decode_annotation(raw, ExactMatch)
    except AnnotationError as error:
        raise AffinityError(
            f"pod {pod.key}: reservation annotation {(raw or '')[:64]!r} is malformed: {error}"
        ) from error
    ignores = pod.metadata.labels.get(LABEL_RESERVATION_IGNORED) == "true"
    return Seeker(pod, request, affinity, tuple(exact.resource_names) if exact else (), ignores)


def refusal(seeker: Seeker, reservation: Reservation, node_labels: Mapping[str, str]) -> str | None:
    """Return why the reservation is not for this pod; None when it matches.

    Whether the reservation is usable at all (`Reservation.usable`) is asked separately.
    """
    if seeker.ignores:
        # It may use the room of any reservation, as if there were none, and consumes none.
        return None
    if reservation.namespace not in ("", seeker.pod.metadata.namespace):
        return "it is a pod of another namespace"
    if not any(owner_matches(owner, seeker.pod) for owner in reservation.owners):
        return "the pod is not among its owners"
    affinity = seeker.affinity or ReservationAffinity()
    if affinity.name:
        if affinity.name != reservation.name:
            return f"the pod wants reservation {affinity.name}"
    elif reason := _repelled(affinity, reservation, node_labels):
        return reason
    return _inexact(seeker, reservation)


def owner_matches(owner: Owner, pod: Pod) -> bool:
    """Every given part of one owner entry holds for the pod."""
    return (
        (owner.object is None or _object_matches(owner.object, pod))
        and (owner.controller is None or _controller_matches(owner.controller, pod))
        and (owner.selector is None or label_selector_matches(owner.selector, pod.metadata.labels))
    )


def _object_matches(wanted: ObjectMatch, pod: Pod) -> bool:
    meta = pod.metadata
    return (
        wanted.uid in ("", meta.uid)
        and wanted.name in ("", meta.name)
        and wanted.namespace in ("", meta.namespace)
        and wanted.api_version in ("", "v1")
    )


def _controller_matches(wanted: ControllerMatch, pod: Pod) -> bool:
    if wanted.namespace not in ("", pod.metadata.namespace):
        return False
    return any(
        wanted.uid in ("", owner.uid)
        and wanted.name in ("", owner.name)
        and wanted.kind in ("", owner.kind)
        and wanted.api_version in ("", owner.api_version)
        for owner in pod.metadata.owner_references
    )


def _repelled(affinity: ReservationAffinity, reservation: Reservation, node_labels: Mapping[str, str]) -> str | None:
    """Unschedulable flag, taints and selectors, which a named affinity skips."""
    taints = (*((_UNSCHEDULABLE,) if reservation.unschedulable else ()), *reservation.taints)
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerated(taint, affinity.tolerations):
            return f"its taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    labels = {**node_labels, **reservation.labels}
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return "its labels do not match the pod's reservation selector"
    terms = affinity.required
    if terms is not None and not any(
        node_term_matches(term, labels, reservation.name) for term in terms.reservation_selector_terms
    ):
        return "its labels do not match the pod's reservation affinity"
    return None


def _inexact(seeker: Seeker, reservation: Reservation) -> str | None:
    for name in seeker.exact:
        asked, reserved = seeker.request.get(name, 0), reservation.allocatable.get(name, 0)
        if asked != reserved:
            return f"it keeps {reserved} of {name}, the pod wants exactly {asked}"
    return None
