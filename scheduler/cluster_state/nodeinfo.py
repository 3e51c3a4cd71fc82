"""Resources that a node offers: allocatable less what it keeps to itself, and its taints with the cordon."""

import msgspec

from api.cpuset import parse_cpuset
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Node, Taint
from api.kube.resources import CPU, QuantityError, Resources, parse_resources
from api.protocol import ANNOTATION_NODE_RESERVATION, DEPRECATED_RESOURCES, TAINT_UNSCHEDULABLE


class NodeReservation(msgspec.Struct, frozen=True, rename="camel"):
    """The node's reservation annotation: amounts or CPUs kept from pods."""

    resources: dict[str, str | int | float] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = "Default"


def node_reservation(node: Node) -> NodeReservation | None:
    """The node's reservation, None when there is none or it cannot be read."""
    text = node.metadata.annotations.get(ANNOTATION_NODE_RESERVATION)
    if not text:
        return None
    try:
        return decode_annotation(text, NodeReservation)
    except AnnotationError:
        return None


def reserved(node: Node) -> Resources:
    """Amounts the node keeps from pods; named CPUs decide the cpu amount. Nothing under ReservedCPUsOnly."""
    reservation = node_reservation(node)
    if reservation is None or reservation.apply_policy == "ReservedCPUsOnly":
        return {}
    try:
        amounts = parse_resources(reservation.resources)
        if reservation.reserved_cpus:
            amounts[CPU] = 1000 * len(parse_cpuset(reservation.reserved_cpus))
    except (QuantityError, ValueError):
        return {}
    return amounts


def allocatable(node: Node) -> Resources:
    """Resources that pods may request in all, never below zero; older resource names count under their current ones."""
    offered: Resources = {}
    for name, amount in parse_resources(node.status.allocatable).items():
        current = DEPRECATED_RESOURCES.get(name, name)
        if current == name or current not in node.status.allocatable:
            offered[current] = amount
    for name, amount in reserved(node).items():
        if name in offered:
            offered[name] = max(0, offered[name] - amount)
    return offered


def node_taints(node: Node) -> tuple[Taint, ...]:
    """The node's taints; a cordon counts as the taint that the node controller sets for it."""
    taints = tuple(node.spec.taints)
    if node.spec.unschedulable and all(taint.key != TAINT_UNSCHEDULABLE for taint in taints):
        taints += (Taint(key=TAINT_UNSCHEDULABLE, effect="NoSchedule"),)
    return taints


def same_offer(before: Node, after: Node) -> bool:
    """Return whether two versions of a node are alike in everything that placement may depend on."""
    return (
        before.spec == after.spec
        and before.status.allocatable == after.status.allocatable
        and before.metadata.labels == after.metadata.labels
        and before.metadata.annotations == after.metadata.annotations
        and before.status.images == after.status.images
        and before.status.declared_features == after.status.declared_features
    )
