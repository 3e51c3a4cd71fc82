"""What bounds a container before it exists: its pod's cgroup, and settings in effect on its neighbours. Pure.

Cgroup v1 refuses a CPU set or a quota that the cgroup above does not have, and a refused write is a container that
does not start; so both are cut to what the pod has. A container that is born while best-effort work is suppressed
starts with the CPUs of its neighbours, not with those that they had before.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from api.cgroup_path import is_below, parent
from api.cpuset import parse_cpuset
from api.intents import Knob
from koordlet.hooks.resources import UNLIMITED, ContainerResources


class ActiveState(Protocol):
    """What the enforcer has in effect. Called by a thread of its own for each container that starts; never waits."""

    def __call__(self) -> Mapping[tuple[str, Knob], str]:
        """Return the values in effect by cgroup path and knob, in cgroup v2 syntax."""


def nothing_active() -> Mapping[tuple[str, Knob], str]:
    """Return no setting: the state where nothing is enforced."""
    return {}


@dataclass(frozen=True, slots=True)
class PodBounds:
    """What the pod's cgroup has at present."""

    cpus: frozenset[int] | None = None
    """None is not known."""
    quota_us: int | None = None
    """Per 100 ms; None is no limit or not known."""


def suppressed_cpus(active: Mapping[tuple[str, Knob], str], pod_path: str) -> frozenset[int] | None:
    """Return the CPUs that containers beside the pod, in the kubelet's directory above it, are kept to; None if none
    is.

    Where neighbours differ it is what most of them have.
    """
    directory = parent(pod_path)
    if directory in ("", "/"):
        return None
    values = Counter(
        value for (path, knob), value in active.items() if knob is Knob.CPUSET_CPUS and is_below(path, directory)
    )
    if not values:
        return None
    try:
        return parse_cpuset(values.most_common(1)[0][0]) or None
    except ValueError:
        return None


def bounded(
    resources: ContainerResources, bounds: PodBounds, suppressed: frozenset[int] | None, *, v1: bool
) -> ContainerResources:
    """Return what a new container can have of `resources`: within the pod's cgroup, and within the suppression."""
    cpus = resources.cpuset_cpus
    if suppressed is not None:
        cpus = cpus & suppressed if cpus is not None and cpus & suppressed else suppressed
    if cpus is not None and bounds.cpus is not None:
        cpus = cpus & bounds.cpus or None
    quota = resources.cpu_quota_us
    if v1 and quota is not None and quota != UNLIMITED and bounds.quota_us is not None:
        quota = min(quota, bounds.quota_us)
    return replace(resources, cpuset_cpus=cpus, cpu_quota_us=quota)
