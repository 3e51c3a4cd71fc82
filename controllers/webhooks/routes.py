"""Paths of the server and their rules; the one place where a rule's answer becomes a response."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from controllers.webhooks.json_patch import difference
from controllers.webhooks.review import Answer, RefusedError, Request, decoded, encoded
from controllers.webhooks.rules.config_map import validate_config_map
from controllers.webhooks.rules.elastic_quotas import mutate_quota, validate_quota
from controllers.webhooks.rules.node_status import mutate_node_status
from controllers.webhooks.rules.pod_mutation import mutate_pod
from controllers.webhooks.rules.pod_validation import validate_pod
from controllers.webhooks.rules.reservations import mutate_reservation, validate_reservation
from controllers.webhooks.view import ClusterView

log = logging.getLogger(__name__)

Rule = Callable[[Request, ClusterView], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """A rule, the resource that it is for (`group/resource`), and whether our own namespaces are exempt."""

    rule: Rule
    resource: str
    exempting: bool = True


_QUOTAS = "scheduling.sigs.k8s.io/elasticquotas"
_RESERVATIONS = "scheduling.koordinator.sh/reservations"

ROUTES: Mapping[str, Route] = {
    "/mutate-pod": Route(mutate_pod, "/pods"),
    "/validate-pod": Route(validate_pod, "/pods"),
    "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota": Route(mutate_quota, _QUOTAS, exempting=False),
    "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota": Route(validate_quota, _QUOTAS, exempting=False),
    "/mutate-reservation": Route(mutate_reservation, _RESERVATIONS),
    "/validate-reservation": Route(validate_reservation, _RESERVATIONS),
    "/mutate-node-status": Route(mutate_node_status, "/nodes"),
    "/validate-configmap": Route(validate_config_map, "/configmaps", exempting=False),
}
"""Rules by path; the paths are Koordinator's."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer to a review, and how it went: `allowed`, `refused`, `malformed` or `failed`."""

    status: int
    body: bytes
    result: str


def reply(path: str, body: bytes, view: Callable[[], ClusterView], exempt: frozenset[str]) -> Reply:
    """Answer a review. Never raises: what a rule did not foresee is logged here and refused without details."""
    route = ROUTES.get(path)
    if route is None:
        return Reply(404, b"no such webhook\n", "malformed")
    try:
        request = decoded(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Reply(400, f"no review: {error}\n".encode(), "malformed")
    try:
        return _reviewed(route, request, view, exempt)
    except RefusedError as refused:
        answer = Answer(refusal=str(refused), code=refused.code)
    except Exception:
        log.exception("review of %s %s/%s at %s", request.operation, request.namespace, request.name, path)
        return Reply(
            200, encoded(request.uid, Answer("the webhook failed; see the log of koord-manager", 500)), "failed"
        )
    return Reply(200, encoded(request.uid, answer), "refused")


def _reviewed(route: Route, request: Request, view: Callable[[], ClusterView], exempt: frozenset[str]) -> Reply:
    if f"{request.resource.group}/{request.resource.resource}" != route.resource:
        raise RefusedError(f"this webhook is for {route.resource.strip('/')}", 400)
    if route.exempting and request.namespace in exempt:
        return Reply(200, encoded(request.uid, Answer()), "allowed")
    answer = route.rule(request, view())
    if not answer.allowed:
        return Reply(200, encoded(request.uid, answer), "refused")
    patch = [] if answer.object is None else difference(request.object, answer.object)
    return Reply(200, encoded(request.uid, answer, patch), "allowed")
