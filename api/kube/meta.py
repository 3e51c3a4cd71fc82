"""Object metadata as the Kubernetes API spells it, common to builtin and custom objects.

Structs decode only the fields named here and ignore the rest, so they are for reading and for objects of
our own; writing one back over an object that others extend would drop what they added (patch instead).
Times stay RFC 3339 strings: the caller that knows the clock compares them.
"""

import msgspec

Quantity = str | int | float
"""A Kubernetes quantity as it stands in JSON: usually a string ("500m", "4Gi"), sometimes a bare number."""

ResourceList = dict[str, Quantity]
"""Resource name to quantity."""

Labels = dict[str, str]


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of wire structs: camelCase in JSON, defaults left out, immutable.

    The garbage collector passes them over: they form no cycles, and walking a cluster's worth of them costs
    more than decoding it.
    """


class OwnerReference(Wire, frozen=True):
    """The object that owns this one; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectReference(Wire, frozen=True):
    """A pointer to any object, with as many fields as the writer knew."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class ObjectMeta(Wire, frozen=True):
    """Name, identity and version of an object; `namespace` is empty for cluster-scoped ones."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controlled_by(self) -> OwnerReference | None:
        """The owner that manages the object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelSelectorRequirement(Wire, frozen=True):
    """`operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Wire, frozen=True):
    """Labels and expressions, all of which must hold; empty selects everything, absent nothing."""

    match_labels: Labels = {}
    match_expressions: list[LabelSelectorRequirement] = []


class Condition(Wire, frozen=True):
    """One observed condition; `status` is True, False or Unknown. Koordinator adds `last_probe_time`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_probe_time: str | None = None
    last_transition_time: str | None = None
