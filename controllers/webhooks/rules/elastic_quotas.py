"""ElasticQuotas on their way in: defaults, and the rules of their tree."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from api.crds import ElasticQuota
from controllers.webhooks.review import ADMITTED, Answer, Document, RefusedError, Request
from controllers.webhooks.rules import quota_tree
from controllers.webhooks.rules.documents import child, converted, copied
from controllers.webhooks.rules.quota_object import (
    ANNOTATION_SHARED_WEIGHT,
    LABEL_PARENT,
    LABEL_TREE_ID,
    RESERVED,
    ROOT,
    SYSTEM,
    Quota,
    QuotaError,
    decoded_amounts,
    parsed,
)
from controllers.webhooks.view import ClusterView


def mutate_quota(request: Request, view: ClusterView) -> Answer:
    """Fill in the parent, the tree of the parent and the shared weight of a quota that is created."""
    if request.operation != "CREATE" or request.object is None:
        return ADMITTED
    quota = _parsed(request.object)
    if quota.name == ROOT:
        return ADMITTED
    document = copied(request.object)
    metadata = child(document, "metadata")
    labels = child(metadata, "labels")
    labels[LABEL_PARENT] = quota.parent
    parent = view.quotas.get(quota.parent)
    if not quota.tree and parent is not None and parent.tree:
        labels[LABEL_TREE_ID] = parent.tree
    maximum: Document = (document.get("spec") or {}).get("max") or {}
    stated = decoded_amounts(metadata.get("annotations") or {})
    if stated.keys() != maximum.keys():
        weight = {name: stated.get(name, amount) for name, amount in maximum.items()}
        child(metadata, "annotations")[ANNOTATION_SHARED_WEIGHT] = msgspec.json.encode(weight, order="sorted").decode()
    return Answer(object=document)


def validate_quota(request: Request, view: ClusterView) -> Answer:
    """Answer the creation, update or deletion of a quota."""
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE", "DELETE"):
        return ADMITTED
    return Answer(refusal="; ".join(_refusals(request, view)))


def _refusals(request: Request, view: ClusterView) -> Iterator[str]:
    if request.operation == "DELETE":
        yield from _deletion(_parsed(request.old_object), view)
        return
    quota = _parsed(request.object)
    if request.operation == "UPDATE":
        old = _parsed(request.old_object)
        if (request.object or {}).get("metadata", {}).get("deletionTimestamp"):
            # Its finalizers are to be removed, whatever became of the tree meanwhile.
            return
        if replace(old, used={}) == replace(quota, used={}):
            # The scheduler writes usage and shares here; a tree from before these rules must not stop it.
            return
        if quota.name in (ROOT, SYSTEM) and not view.may_bind(request.user_info, request.namespace):
            yield f"quota {quota.name} is reserved"
        yield from quota_tree.change_refusals(old, quota)
    else:
        yield from _creation(quota, request, view)
    yield from quota_tree.own_refusals(quota)
    if quota.name not in RESERVED:
        yield from quota_tree.tree_refusals(quota, view.quotas)


def _creation(quota: Quota, request: Request, view: ClusterView) -> Iterator[str]:
    if quota.name in RESERVED and not view.may_bind(request.user_info, request.namespace):
        yield f"quota {quota.name} is reserved; schedulers create it"
    known = view.quotas.get(quota.name)
    if known is not None and known.namespace != request.namespace:
        yield f"namespace {known.namespace} has a quota {quota.name}; names of quotas are unique in the cluster"


def _deletion(quota: Quota, view: ClusterView) -> Iterator[str]:
    yield from quota_tree.deletion_refusals(quota, view.quotas)
    if view.quota_has_pods(quota.name, quota.namespaces):
        yield f"quota {quota.name} has pods"


def _parsed(document: Document | None) -> Quota:
    try:
        return parsed(converted(document or {}, ElasticQuota))
    except QuotaError as error:
        raise RefusedError(str(error)) from error
