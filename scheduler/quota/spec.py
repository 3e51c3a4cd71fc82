"""An ElasticQuota object as numbers: place in the tree from labels, weight and total from annotations."""

from api.crds import ElasticQuota
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.resources import Resources, parse_resources
from scheduler.quota.tree import ROOT, QuotaSpec

QUOTA = "quota.scheduling.koordinator.sh/"
IGNORE_DEFAULT_TREE = QUOTA + "ignore-default-tree"


def quota_spec(quota: ElasticQuota) -> QuotaSpec:
    """Decode a quota. Raises QuantityError for unreadable amounts in its spec.

    A shared weight that is unreadable or all zero counts as the maximum, as does each key it lacks.
    """
    labels, annotations = quota.metadata.labels, quota.metadata.annotations
    weight = _amounts(annotations.get(QUOTA + "shared-weight"))
    is_root = labels.get(QUOTA + "is-root") == "true"
    return QuotaSpec(
        name=quota.metadata.name,
        minimum=parse_resources(quota.spec.min),
        maximum=parse_resources(quota.spec.max),
        parent=labels.get(QUOTA + "parent") or ROOT,
        weight=weight if any(weight.values()) else {},
        lends=labels.get(QUOTA + "allow-lent-resource") != "false",
        is_parent=labels.get(QUOTA + "is-parent") == "true",
        tree=labels.get(QUOTA + "tree-id", ""),
        namespace=quota.metadata.namespace,
        namespaces=_names(annotations.get(QUOTA + "namespaces")),
        total=_amounts(annotations.get(QUOTA + "total-resource")) if is_root else None,
        apart=labels.get(IGNORE_DEFAULT_TREE) == "true",
    )


def _amounts(text: str | None) -> Resources:
    if not text:
        return {}
    try:
        return parse_resources(decode_annotation(text, dict[str, str | int | float]))
    except ValueError:
        return {}


def _names(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(decode_annotation(text, list[str]))
    except AnnotationError:
        return ()
