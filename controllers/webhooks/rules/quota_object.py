"""An ElasticQuota as rules read it, and the quota of a pod."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from api.crds import ElasticQuota
from api.kube.resources import QuantityError, Resources, parse_resources
from api.protocol import QUOTA_PREFIX

ROOT = "koordinator-root-quota"
SYSTEM = "koordinator-system-quota"
DEFAULT = "koordinator-default-quota"
RESERVED = (ROOT, SYSTEM, DEFAULT)

LABEL_PARENT = QUOTA_PREFIX + "parent"
LABEL_IS_PARENT = QUOTA_PREFIX + "is-parent"
LABEL_TREE_ID = QUOTA_PREFIX + "tree-id"
LABEL_IS_ROOT = QUOTA_PREFIX + "is-root"
LABEL_FORCE = QUOTA_PREFIX + "allow-force-update"
ANNOTATION_NAMESPACES = QUOTA_PREFIX + "namespaces"
ANNOTATION_SHARED_WEIGHT = QUOTA_PREFIX + "shared-weight"
ANNOTATION_CHILD_REQUEST = QUOTA_PREFIX + "child-request"
ANNOTATION_ADMISSION = QUOTA_PREFIX + "admission"
ANNOTATION_STRICT_KEYS = QUOTA_PREFIX + "max-strict-check-resource-keys"


class QuotaError(ValueError):
    """A quota that cannot be read; the message names the field."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Place of a quota in its tree, and its amounts: cpu in millicores, all else in units."""

    name: str
    namespace: str = ""
    parent: str = ROOT
    is_parent: bool = False
    tree: str = ""
    is_root: bool = False
    """The root of a tree of its own."""
    forced: bool = False
    """Sums of minima are not checked."""
    minimum: Resources = field(default_factory=dict)
    maximum: Resources = field(default_factory=dict)
    weight: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    requested: Resources = field(default_factory=dict)
    """What its pods ask for, as the scheduler states it."""
    admitted: Resources = field(default_factory=dict)
    """What its pods may ask for at most; empty is the maximum."""
    namespaces: tuple[str, ...] = ()
    strict_keys: tuple[str, ...] = ()


def parsed(quota: ElasticQuota) -> Quota:
    """Return a quota's values. Raises QuotaError."""
    labels, annotations = quota.metadata.labels, quota.metadata.annotations
    return Quota(
        name=quota.metadata.name,
        namespace=quota.metadata.namespace,
        parent=labels.get(LABEL_PARENT) or ROOT,
        is_parent=labels.get(LABEL_IS_PARENT) == "true",
        tree=labels.get(LABEL_TREE_ID, ""),
        is_root=labels.get(LABEL_IS_ROOT) == "true",
        forced=labels.get(LABEL_FORCE) == "true",
        minimum=_amounts("spec.min", quota.spec.min),
        maximum=_amounts("spec.max", quota.spec.max),
        weight=_amounts(ANNOTATION_SHARED_WEIGHT, decoded_amounts(annotations)),
        used=_amounts("status.used", quota.status.used),
        requested=_stated(annotations, ANNOTATION_CHILD_REQUEST),
        admitted=_stated(annotations, ANNOTATION_ADMISSION),
        namespaces=_names(annotations, ANNOTATION_NAMESPACES),
        strict_keys=_names(annotations, ANNOTATION_STRICT_KEYS),
    )


def decoded_amounts(annotations: Mapping[str, str]) -> dict[str, str | int | float]:
    """Return the quantities of the shared weight, empty without one. Raises QuotaError."""
    text = annotations.get(ANNOTATION_SHARED_WEIGHT, "")
    try:
        return msgspec.json.decode(text, type=dict[str, str | int | float]) if text else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuotaError(f"annotation {ANNOTATION_SHARED_WEIGHT} is no JSON map of quantities: {error}") from error


def _amounts(place: str, quantities: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(quantities)
    except QuantityError as error:
        raise QuotaError(f"{place}: {error}") from error


def _stated(annotations: Mapping[str, str], key: str) -> Resources:
    """Return amounts that a scheduler or an administrator notes; none where they cannot be read."""
    try:
        return parse_resources(msgspec.json.decode(annotations.get(key) or "{}", type=dict[str, str | int | float]))
    except (msgspec.DecodeError, RecursionError, QuantityError):
        return {}


def _names(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = annotations.get(key, "")
    try:
        return tuple(msgspec.json.decode(text, type=list[str])) if text else ()
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuotaError(f"annotation {key} is no JSON list of names: {error}") from error


def quota_of(quotas: Mapping[str, Quota], namespace: str, label: str) -> Quota | None:
    """Return the quota of a pod: by its label, the namespace's own, by the quotas' lists of namespaces."""
    found = quotas.get(label) if label else None
    if found is not None:
        return found
    own = quotas.get(namespace)
    if own is not None and own.namespace == namespace:
        return own
    return next((quota for quota in quotas.values() if namespace in quota.namespaces), None)


def children_of(quotas: Mapping[str, Quota], name: str) -> Sequence[Quota]:
    """Return the quotas whose parent has a name."""
    return [quota for quota in quotas.values() if quota.parent == name and quota.name != name]
