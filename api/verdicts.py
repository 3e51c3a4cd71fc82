"""Verdict on the wire: victim, resource, loss, culprits; schema `koord.verdict/v1`, a JSON object a line."""

from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA = "koord.verdict/v1"

KERNEL = "[kernel]"
"""Culprit: kernel threads and interrupts."""
OTHER = "[other]"
"""Culprit: several cgroups folded together."""
GONE = "[gone]"
"""Culprit: a cgroup that exists no more and whose path is not known."""
OWN_THREADS = "[own threads]"
OWN_QUOTA = "[own quota]"
OWN_LIMIT = "[own limit]"
OWN_PLACEMENT = "[own placement]"
"""Culprit: memory of the victim on another NUMA node than its CPUs."""
HYPERVISOR = "[hypervisor]"
"""Culprit: what runs beside this virtual machine."""
ANCESTOR = "[ancestor]"
"""Culprit: a limit on an ancestor whose owner is not known."""


class VerdictState(StrEnum):
    """Phase of a verdict's life."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Severity(StrEnum):
    """Degree to which the loss exceeds what the rule tolerates."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class How(StrEnum):
    """Evidence against a culprit: seen directly in a blame table, or correlated."""

    DIRECT = "direct"
    CORRELATED = "correlated"


class CgroupRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names of a cgroup as the node knew them; empty fields are left out."""

    name: str = ""
    """As people read it: `namespace/pod/container`, unit, container, or the last part of the path."""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    pod_uid: str = ""
    workload: str = ""
    """Owner as `Kind/namespace/name`; or service, image, unit, path."""

    @property
    def owner(self) -> str:
        """`Kind name` of a pod's owner; empty outside pods and for a pod without owner."""
        kind, _, rest = self.workload.partition("/")
        name = rest.partition("/")[2]
        return f"{kind} {name}" if self.pod and name else ""


NO_REF = CgroupRef()


class Group(StrEnum):
    """What pods may have in common that no cgroup holds, small before large; the culprit has kind and name."""

    WORKLOAD = "workload"
    NAMESPACE = "namespace"

    def culprit(self, name: str) -> str:
        """Return the culprit that stands for the pods of a group, such as `[namespace ci]`."""
        return f"[{self} {name}]"


def groups_of(ref: CgroupRef) -> tuple[str, ...]:
    """Return the culprits that stand for the groups of a pod's cgroup, the smallest first; none outside pods."""
    if not ref.pod:
        return ()
    named = ((Group.WORKLOAD, ref.workload), (Group.NAMESPACE, ref.namespace))
    return tuple(group.culprit(name) for group, name in named if name)


def group_kind(culprit: str) -> Group | None:
    """Return the kind of the group that a culprit stands for; none for any other word."""
    return next((kind for kind in Group if culprit.startswith(f"[{kind} ")), None)


def group_ref(culprit: str) -> CgroupRef:
    """Return the names of a culprit that stands for a group; none for any other word."""
    kind, _, name = culprit.removeprefix("[").removesuffix("]").partition(" ")
    match kind if culprit.startswith("[") and name else "":
        case Group.WORKLOAD:
            parts = name.split("/")
            return CgroupRef(f"{kind} {name}", parts[1] if len(parts) == 3 else "", workload=name)
        case Group.NAMESPACE:
            return CgroupRef(f"{kind} {name}", name)
        case _:
            return NO_REF


class Culprit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One holder of the resource; `path` is a cgroup or one of the bracketed names above."""

    path: str
    share: float
    """Part of the victim's loss, 0..1; the shares of a verdict sum to at most 1."""
    how: How
    ref: CgroupRef = NO_REF


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the verdict stream."""

    schema: Literal["koord.verdict/v1"] = "koord.verdict/v1"
    time: float
    """Wall-clock seconds of the frame that decided."""
    state: VerdictState
    victim: str
    """Path of the cgroup that loses."""
    resource: str
    cause: str
    lost_seconds_per_second: float
    """Smoothed in an update, the newest harmed tick weighing half; the evidence has the tick's own."""
    severity: Severity
    culprits: tuple[Culprit, ...] = ()
    """Biggest share first; empty where nothing explains the loss."""
    confidence: float = 0.0
    """Share of the loss that was measured and seen directly to be a named culprit's, 0..1."""
    evidence: dict[str, float] = {}
    rule: str = ""
    since: float = 0.0
    """Wall-clock seconds of the frame that opened it."""
    victim_ref: CgroupRef = NO_REF


def to_json(verdict: Verdict) -> bytes:
    """Return one line, without the line end."""
    return msgspec.json.encode(verdict)


def from_json(line: bytes) -> Verdict:
    """Return the verdict of a line; raises msgspec.ValidationError for another schema or a missing field."""
    return msgspec.json.decode(line, type=Verdict)


_SELF_INFLICTED = frozenset({"own", "ancestor", "limit", "quota"})


def is_self_inflicted(verdict: Verdict) -> bool:
    """Return whether the loss lies in the victim or its limits: no neighbour is at fault, another node would not help.

    The words of the cause say so (`own_threads`, `ancestor_quota`, `limit`), so that a new cause needs no entry here.
    """
    return not _SELF_INFLICTED.isdisjoint(verdict.cause.split("_"))
