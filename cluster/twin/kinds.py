"""Kinds that the twin serves, with their update strategies; custom ones are added by their definition."""

from dataclasses import dataclass, field
from typing import Any

from cluster import resources
from cluster.resources import Document, Resource


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A served kind. The flags follow the update strategies of the real server's storage."""

    name: str
    plural: str
    group: str
    version: str
    namespaced: bool
    status: bool = False
    """Has a status subresource: writes to the object leave its status alone, and the other way round."""
    status_at_birth: bool = False
    """Create keeps the status, as for nodes, which register themselves with it."""
    status_writes_metadata: bool = False
    """A status write may change labels and annotations, as for pods and nodes."""
    unconditional: bool = True
    """PUT without a resourceVersion is allowed."""
    custom: bool = False
    schema: Document | None = field(default=None, compare=False)
    """OpenAPI schema of a custom kind; unknown fields are pruned by it."""

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural with group, as error messages name a kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_STATUS = frozenset({"status"})
_CONDITIONAL = frozenset({"conditional"})
_FLAGS: dict[str, frozenset[str]] = {
    "Pod": _STATUS | {"status writes metadata"},
    "Node": _STATUS | {"status writes metadata", "status on create"},
    "Namespace": _STATUS,
    "PersistentVolume": _STATUS,
    "PersistentVolumeClaim": _STATUS,
    "Service": _STATUS,
    "PodDisruptionBudget": _STATUS | _CONDITIONAL,
    "Lease": _CONDITIONAL,
    "CSINode": _CONDITIONAL,
    "CustomResourceDefinition": _STATUS | _CONDITIONAL,
    "ReplicaSet": _STATUS,
    "ReplicationController": _STATUS,
    "Deployment": _STATUS,
    "StatefulSet": _STATUS,
    "DaemonSet": _STATUS,
    "Job": _STATUS,
    "ResourceClaim": _STATUS,
}

_BUILTIN: tuple[Resource[Any], ...] = tuple(value for value in vars(resources).values() if isinstance(value, Resource))


def builtin_kinds() -> list[ServedKind]:
    """Every kind that `cluster.resources` names, and core/v1 events beside those of events.k8s.io."""
    kinds = [_builtin(item, _FLAGS.get(item.kind, frozenset())) for item in _BUILTIN]
    return [*kinds, ServedKind("Event", "events", "", "v1", True)]


def _builtin(resource: Resource[Any], flags: frozenset[str]) -> ServedKind:
    return ServedKind(
        name=resource.kind,
        plural=resource.plural,
        group=resource.group,
        version=resource.version,
        namespaced=resource.namespaced,
        status="status" in flags,
        status_at_birth="status on create" in flags,
        status_writes_metadata="status writes metadata" in flags,
        unconditional="conditional" not in flags,
    )


def custom_kinds(definition: Document) -> list[ServedKind]:
    """The kinds that a CustomResourceDefinition defines, one per served version."""
    spec = definition["spec"]
    return [
        ServedKind(
            name=spec["names"]["kind"],
            plural=spec["names"]["plural"],
            group=spec["group"],
            version=version["name"],
            namespaced=spec["scope"] == "Namespaced",
            status="status" in (version.get("subresources") or {}),
            unconditional=False,
            custom=True,
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]
