"""Reservations on their way in: colocation profiles for their template, and rules for owners and template."""

from collections.abc import Iterator

from api.crds import Reservation
from api.kube.objects import Pod
from api.kube.resources import QuantityError
from controllers.webhooks.review import ADMITTED, Answer, Document, RefusedError, Request
from controllers.webhooks.rules import profiles
from controllers.webhooks.rules.documents import child, converted, copied
from controllers.webhooks.rules.pod_validation import class_refusals
from controllers.webhooks.rules.protected_keys import FORBIDDEN_KEYS, SCHEDULER_KEYS
from controllers.webhooks.view import ClusterView


def mutate_reservation(request: Request, view: ClusterView) -> Answer:
    """Apply the profiles that select a reservation that is created, to it and to its template.

    Reservations have no namespace, so namespace selectors do not apply; resources are not translated.
    """
    if request.operation != "CREATE" or request.object is None:
        return ADMITTED
    reservation = converted(request.object, Reservation)
    document = copied(request.object)
    for profile in view.profiles:
        if profiles.selects(profile, reservation.metadata.labels, None) and profiles.drawn(profile, view.draw):
            template: Document = child(child(document, "spec"), "template")
            document["spec"]["template"] = profiles.apply(profile, template, view.priority_classes, [document])
    return Answer(object=document)


def validate_reservation(request: Request, _view: ClusterView) -> Answer:
    """Answer the creation of a reservation."""
    if request.operation != "CREATE" or request.object is None or request.sub_resource:
        return ADMITTED
    try:
        return Answer(refusal="; ".join(_refusals(converted(request.object, Reservation))))
    except QuantityError as error:
        raise RefusedError(f"template: {error}", 400) from error


def _refusals(reservation: Reservation) -> Iterator[str]:
    for number, owner in enumerate(reservation.spec.owners):
        if owner.object is None and owner.controller is None and owner.label_selector is None:
            yield f"spec.owners[{number}] names no owner"
    template = reservation.spec.template
    if template is None:
        yield "spec.template is required"
        return
    pod = converted(template, Pod)
    if not pod.spec.containers:
        yield "spec.template has no containers, so it reserves nothing"
    for key in (*SCHEDULER_KEYS, *FORBIDDEN_KEYS):
        if key in pod.metadata.annotations:
            yield f"spec.template has the annotation {key}, which only a scheduler may write"
    for refusal in class_refusals(pod):
        yield f"spec.template: {refusal}"
