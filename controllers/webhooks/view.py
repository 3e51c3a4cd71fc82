"""What rules know of the cluster besides the request: values and a few lookups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from api.crds import ClusterColocationProfile, ElasticQuotaProfile
from api.kube.meta import ObjectMeta, Wire
from controllers.webhooks.review import UserInfo
from controllers.webhooks.rules.quota_object import Quota

_NONE: Mapping[str, Any] = MappingProxyType({})


class PriorityClass(Wire, frozen=True):
    """A PriorityClass of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"


def _no_labels(_namespace: str) -> Mapping[str, str]:
    return _NONE


def _no_nodes() -> Mapping[str, Mapping[str, str]]:
    return _NONE


def _no_pods(_quota: str, _namespaces: Sequence[str]) -> bool:
    return False


def _may_not(_user: UserInfo, _namespace: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as rules see it, at the time of one request."""

    profiles: Sequence[ClusterColocationProfile] = ()
    """Colocation profiles in order of their names."""
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    quota_profiles: Sequence[ElasticQuotaProfile] = ()
    namespace_labels: Callable[[str], Mapping[str, str]] = _no_labels
    node_labels: Callable[[], Mapping[str, Mapping[str, str]]] = _no_nodes
    quota_has_pods: Callable[[str, Sequence[str]], bool] = _no_pods
    """Whether pods use a quota: by their label, or by a namespace of the list."""
    may_bind: Callable[[UserInfo, str], bool] = _may_not
    """Whether a user may bind pods of a namespace: the right of schedulers, who may also write what they allocated."""
    restricted_classes: frozenset[str] = frozenset({"SYSTEM"})
    """QoS classes that only pods of namespaces with a grant may take."""
    multi_quota_tree: bool = False
    """Whether pods of a quota tree stay on the nodes of the tree's ElasticQuotaProfile."""
    quota_admission: bool = False
    """Whether pods beyond what their quota admits are refused when they are created."""
    validate_devices: bool = False
    """Whether requests for GPUs are held to the protocol's units."""
    draw: int = 0
    """A random number of this request, for profiles with a probability."""
