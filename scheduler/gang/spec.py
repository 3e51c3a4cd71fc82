"""Parameters of a gang, read from a PodGroup or from the keys on its pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Pod
from api.kube.times import duration_seconds

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
LIGHT_NAME_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
LIGHT_MINIMUM_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
MATCH_POLICY_LABEL = "pod-group.scheduling.sigs.k8s.io/match-policy"
GANG = "gang.scheduling.koordinator.sh/"
OF_WORKLOADS = "@scheduling.k8s.io"
"""Ending of ids of groups of scheduling.k8s.io; no name of an object contains it."""
DEFAULT_WAIT_SECONDS = 600.0
MAX_GROUP = 64
"""Gangs that bind together."""
MAX_MEMBERS = 2**31 - 1
"""A larger number in an annotation counts as this one."""

Keys = Mapping[str, str]
"""Labels or annotations."""


class MatchPolicy(StrEnum):
    """Members that count towards the minimum."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


@dataclass(frozen=True, slots=True)
class GangSpec:
    """One gang's parameters; `id` is `namespace/name`."""

    id: str
    minimum: int
    total: int
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    strict: bool = True
    group: tuple[str, ...] = ()
    """Sorted ids of the gangs bound together, this one included."""
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED

    @property
    def group_id(self) -> str:
        """The sorted gang ids joined with commas."""
        return ",".join(self.group)


class GangError(ValueError):
    """A gang's keys cannot be read; the message names object, key and value."""


@dataclass(frozen=True, slots=True)
class GangDefaults:
    """Parameters of gangs that do not set them."""

    wait_seconds: float = DEFAULT_WAIT_SECONDS
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED


def gang_id(namespace: str, labels: Keys, annotations: Keys) -> str | None:
    """The gang that a pod belongs to: PodGroup label, light label, annotation, in this order.

    An annotation may hold what no name does: with an "@" it becomes an id of no group, which `spec_of_pod` refuses.
    """
    name = labels.get(POD_GROUP_LABEL) or labels.get(LIGHT_NAME_LABEL) or annotations.get(GANG + "name")
    return f"{namespace}/{name}{'@' if '@' in name else ''}" if name else None


def gang_of_pod(pod: Pod) -> str | None:
    """The gang of a pod: the group in its spec, or what its labels and annotations name; None without one."""
    meta, group = pod.metadata, pod.spec.scheduling_group
    named = workload_group_id(meta.namespace, group) if group else None
    return named or gang_id(meta.namespace, meta.labels, meta.annotations)


def workload_group_id(namespace: str, scheduling_group: Mapping[str, object]) -> str | None:
    """The group of scheduling.k8s.io that a pod names; its id differs from that of any other gang."""
    name = scheduling_group.get("podGroupName")
    return f"{namespace}/{name}{OF_WORKLOADS}" if name else None


def spec_of_workload_group(gang: str, minimum: int | None, defaults: GangDefaults) -> GangSpec:
    """The gang of a group that must have a number of pods; None places each pod by itself."""
    if minimum is None:
        return GangSpec(gang, 1, 1, defaults.wait_seconds, strict=False, group=(gang,), policy=defaults.policy)
    count = max(minimum, 1)
    return GangSpec(gang, count, count, defaults.wait_seconds, group=(gang,), policy=defaults.policy)


def spec_of_pod(gang: str, labels: Keys, annotations: Keys, *, defaults: GangDefaults | None = None) -> GangSpec:
    """The gang that a pod's own keys describe. GangError for a name that is none, or a minimum that is no number."""
    if "@" in gang:
        raise GangError(f"gang {gang[:256]}: {GANG}name is no name of a gang")
    raw = labels.get(LIGHT_MINIMUM_LABEL) or annotations.get(GANG + "min-available")
    if raw is None:
        raise GangError(f"gang {gang}: neither a PodGroup nor {GANG}min-available says how many belong to it")
    try:
        minimum = min(int(raw), MAX_MEMBERS)
    except ValueError as error:
        raise GangError(f"gang {gang}: {GANG}min-available is {raw[:64]!r}, expected a whole number") from error
    defaults = defaults or GangDefaults()
    wait = duration_seconds(annotations.get(GANG + "waiting-time", ""))
    return _completed(gang, minimum, wait, (labels, annotations), defaults)


def spec_of_pod_group(
    gang: str,
    minimum: int,
    timeout_seconds: float | None,
    *,
    labels: Keys,
    annotations: Keys,
    defaults: GangDefaults | None = None,
) -> GangSpec:
    """The gang that a PodGroup describes: `spec.minMember`, `spec.scheduleTimeoutSeconds` and annotations."""
    return _completed(gang, minimum, timeout_seconds, (labels, annotations), defaults or GangDefaults())


def _completed(
    gang: str, minimum: int, wait: float | None, keys: tuple[Keys, Keys], defaults: GangDefaults
) -> GangSpec:
    labels, annotations = keys
    total = annotations.get(GANG + "total-number", "")
    policy = annotations.get(GANG + "match-policy") or labels.get(MATCH_POLICY_LABEL, "")
    return GangSpec(
        id=gang,
        minimum=minimum,
        total=max(min(int(total[:19]), MAX_MEMBERS), minimum) if total.isdecimal() else minimum,
        wait_seconds=wait if wait and wait > 0 else defaults.wait_seconds,
        strict=annotations.get(GANG + "mode") != "NonStrict",
        group=_group(gang, annotations.get(GANG + "groups", "")),
        policy=MatchPolicy(policy) if policy in set(MatchPolicy) else defaults.policy,
    )


def _group(gang: str, raw: str) -> tuple[str, ...]:
    if not raw:
        return (gang,)
    try:
        listed = decode_annotation(raw, list[str])
    except AnnotationError as error:
        raise GangError(f"gang {gang}: {GANG}groups is {raw[:64]!r}, expected a JSON list of namespace/name") from error
    if len(listed) > MAX_GROUP:
        raise GangError(f"gang {gang}: {GANG}groups names {len(listed)} gangs, at most {MAX_GROUP} bind together")
    return tuple(sorted({gang, *listed}))
