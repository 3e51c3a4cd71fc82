"""What bounds a container before it exists: its pod's cgroup, and settings in effect on its neighbours. Pure.

Cgroup v1 refuses a CPU set or a quota that the cgroups above do not have, and a refused write is a container that
does not start; so CPUs are cut to what the pod has, and a quota above the least one of the pod's ancestors is left
out. A container that is born while best-effort work is suppressed starts with the CPUs of its neighbours, not with
those that they had before.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from api.cgroup_path import is_below, lineage, parent
from api.cpuset import parse_cpuset
from api.intents import Knob
from koordlet.hooks.resources import ContainerResources

ActiveActions = Callable[[], Mapping[str, Mapping[Knob, str]]]
"""Values of actions that the enforcer has in effect, by cgroup path and knob, in cgroup v2 syntax. Called on the
plugin's thread for each container that starts; never waits."""


def nothing_active() -> Mapping[str, Mapping[Knob, str]]:
    """Return no setting: the state where nothing is enforced."""
    return {}


@dataclass(frozen=True, slots=True)
class PodBounds:
    """What the pod's cgroup has at present."""

    cpus: frozenset[int] | None = None
    """None is not known."""
    quota_us: int | None = None
    """Per 100 ms, the least of the pod's cgroup and those above it; None is no limit or not known."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """What a container starts with because of actions on others."""

    cpus: frozenset[int] | None = None
    by_neighbours: bool = False
    """Whether it is the containers beside that are limited, and no cgroup above."""
    oom_score_adj: int | None = None


NO_SUPPRESSION = Suppression()


def suppression(actions: Mapping[str, Mapping[Knob, str]], pod_path: str) -> Suppression:
    """Return what binds a new container of a pod: actions on the pod and the cgroups above it, else the CPUs that
    containers in the same directory of the kubelet are kept to. Where these differ it is what most of them have."""
    cpus = _cpus(_nearest(actions, pod_path, Knob.CPUSET_CPUS))
    score = _nearest(actions, pod_path, Knob.OOM_SCORE_ADJ)
    by_neighbours = False
    directory = parent(pod_path)
    if cpus is None and directory not in ("", "/"):
        beside = Counter(
            values[Knob.CPUSET_CPUS]
            for path, values in actions.items()
            if Knob.CPUSET_CPUS in values and is_below(path, directory)
        )
        cpus = _cpus(beside.most_common(1)[0][0]) if beside else None
        by_neighbours = cpus is not None
    return Suppression(cpus, by_neighbours, int(score) if score is not None else None)


def _nearest(actions: Mapping[str, Mapping[Knob, str]], path: str, knob: Knob) -> str | None:
    return next((actions[above][knob] for above in lineage(path) if knob in actions.get(above, {})), None)


def _cpus(text: str | None) -> frozenset[int] | None:
    try:
        return parse_cpuset(text or "") or None
    except ValueError:
        return None


def bounded(
    resources: ContainerResources, bounds: PodBounds, suppressed: Suppression, *, v1: bool
) -> ContainerResources:
    """Return what a new container can have of `resources`: within the pod's cgroup, and within the suppression."""
    cpus = resources.cpuset_cpus
    if suppressed.cpus is not None:
        cpus = cpus & suppressed.cpus if cpus is not None and cpus & suppressed.cpus else suppressed.cpus
    if cpus is not None and bounds.cpus is not None:
        cpus = cpus & bounds.cpus or None
    quota = resources.cpu_quota_us
    if v1 and quota is not None and bounds.quota_us is not None and quota > bounds.quota_us:
        quota = None  # what is above binds it; a quota of its own would be refused, and more so when that falls
    scores = [score for score in (resources.oom_score_adj, suppressed.oom_score_adj) if score is not None]
    return replace(resources, cpuset_cpus=cpus, cpu_quota_us=quota, oom_score_adj=max(scores, default=None))
