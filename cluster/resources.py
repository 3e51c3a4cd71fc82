"""Kinds of the API and their paths, object keys, queries and patches.

A `Resource` pairs a place in the API with the type its objects decode to. The builtin ones decode to plain
JSON documents; `PODS.of(Pod)` decodes to a struct that names only the fields a program reads, which is what
makes lists of hundreds of thousands affordable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from api.crds import Definition

T = TypeVar("T")
U = TypeVar("U")
M = TypeVar("M", bound=msgspec.Struct)

Document = dict[str, Any]
"""An API object as plain JSON."""


class Key(NamedTuple):
    """Identifies an object within its kind; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of the API and the type its objects decode to.

    `complete` says that the type holds every field of the kind, so that writing it back loses nothing.
    """

    kind: str
    plural: str
    model: type[T]
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    complete: bool = False

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def of(self, model: type[U], *, complete: bool = False) -> "Resource[U]":
        """The same kind, decoded to another type."""
        return Resource(self.kind, self.plural, model, self.group, self.version, self.namespaced, complete=complete)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, object or subresource; an empty namespace means all of them."""
        parts = ["/api/v1" if not self.group else f"/apis/{self.group}/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def object_path(self, key: Key, subresource: str = "") -> str:
        """URL path of one object.

        Raises ValueError when the key's namespace does not fit the kind's scope: the path would name
        another object.
        """
        if not key.name or self.namespaced != bool(key.namespace):
            raise ValueError(f"{self.kind} key {key!r} needs a name and {'a' if self.namespaced else 'no'} namespace")
        return self.path(key.namespace, key.name, subresource)


@dataclass(frozen=True, slots=True)
class Query:
    """Selection of a list or watch: a namespace ("" is all) and selectors in API syntax."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def parameters(self) -> dict[str, str]:
        """Return the URL parameters."""
        pairs = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in pairs.items() if value}


EVERYTHING = Query()
"""All objects of a kind."""


class PatchType(StrEnum):
    """Content types of PATCH."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to an object: its type and body.

    Every type but JSON may be sent twice with the same effect as once. Strategic merge exists for builtin
    kinds only. `field_manager` names the owner of the fields; apply requires it, and `force` takes fields
    over from other owners.
    """

    type: PatchType
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    field_manager: str = "koord"
    force: bool = False

    @property
    def repeatable(self) -> bool:
        """True when sending it again after a lost answer is safe."""
        return self.type is not PatchType.JSON


def merge_patch(body: Mapping[str, Any]) -> Patch:
    """RFC 7386: maps merge, null removes, lists are replaced whole."""
    return Patch(PatchType.MERGE, body)


def strategic_patch(body: Mapping[str, Any]) -> Patch:
    """Kubernetes' own merge: lists of named things merge by name. Builtin kinds only."""
    return Patch(PatchType.STRATEGIC, body)


def apply_patch(body: Mapping[str, Any], *, field_manager: str, force: bool = True) -> Patch:
    """Server-side apply: the body becomes exactly what `field_manager` owns of the object.

    The body needs `apiVersion` and `kind`; a missing object is created.
    """
    return Patch(PatchType.APPLY, body, field_manager, force)


def _builtin(
    kind: str, plural: str, group: str = "", version: str = "v1", *, namespaced: bool = True
) -> Resource[Document]:
    return Resource(kind, plural, dict, group, version, namespaced, complete=True)


def custom(definition: Definition[M]) -> Resource[M]:
    """Return a custom kind of this project, decoded to its struct, which holds every field of its schema."""
    return Resource(
        definition.kind,
        definition.plural,
        definition.model,
        definition.group,
        definition.version,
        definition.namespaced,
        complete=True,
    )


PODS = _builtin("Pod", "pods")
NODES = _builtin("Node", "nodes", namespaced=False)
NAMESPACES = _builtin("Namespace", "namespaces", namespaced=False)
CONFIG_MAPS = _builtin("ConfigMap", "configmaps")
SECRETS = _builtin("Secret", "secrets")
SERVICES = _builtin("Service", "services")
PERSISTENT_VOLUMES = _builtin("PersistentVolume", "persistentvolumes", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = _builtin("PersistentVolumeClaim", "persistentvolumeclaims")
REPLICATION_CONTROLLERS = _builtin("ReplicationController", "replicationcontrollers")
REPLICA_SETS = _builtin("ReplicaSet", "replicasets", "apps")
DEPLOYMENTS = _builtin("Deployment", "deployments", "apps")
STATEFUL_SETS = _builtin("StatefulSet", "statefulsets", "apps")
DAEMON_SETS = _builtin("DaemonSet", "daemonsets", "apps")
JOBS = _builtin("Job", "jobs", "batch")
POD_DISRUPTION_BUDGETS = _builtin("PodDisruptionBudget", "poddisruptionbudgets", "policy")
LEASES = _builtin("Lease", "leases", "coordination.k8s.io")
EVENTS = _builtin("Event", "events", "events.k8s.io")
PRIORITY_CLASSES = _builtin("PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False)
STORAGE_CLASSES = _builtin("StorageClass", "storageclasses", "storage.k8s.io", namespaced=False)
CSI_NODES = _builtin("CSINode", "csinodes", "storage.k8s.io", namespaced=False)
CSI_DRIVERS = _builtin("CSIDriver", "csidrivers", "storage.k8s.io", namespaced=False)
CSI_STORAGE_CAPACITIES = _builtin("CSIStorageCapacity", "csistoragecapacities", "storage.k8s.io")
VOLUME_ATTACHMENTS = _builtin("VolumeAttachment", "volumeattachments", "storage.k8s.io", namespaced=False)
RESOURCE_CLAIMS = _builtin("ResourceClaim", "resourceclaims", "resource.k8s.io")
RESOURCE_SLICES = _builtin("ResourceSlice", "resourceslices", "resource.k8s.io", namespaced=False)
WORKLOAD_POD_GROUPS = _builtin("PodGroup", "podgroups", "scheduling.k8s.io", "v1alpha2")
DEVICE_CLASSES = _builtin("DeviceClass", "deviceclasses", "resource.k8s.io", namespaced=False)
MUTATING_WEBHOOK_CONFIGURATIONS = _builtin(
    "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "admissionregistration.k8s.io", namespaced=False
)
VALIDATING_WEBHOOK_CONFIGURATIONS = _builtin(
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "admissionregistration.k8s.io",
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITIONS = _builtin(
    "CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", namespaced=False
)
