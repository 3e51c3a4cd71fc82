"""The workload of a pod: how many pods it wants, whether it is at rest, how many may be away at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.kube.meta import OwnerReference
from api.kube.objects import Pod
from controllers.descheduler.kinds import AnyWorkload, ScaledObject, WorkloadObject

Known = Mapping[str, tuple[str, AnyWorkload]]
"""Workload objects by uid, with their kinds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The topmost owner of a pod that is known, or its controller."""

    uid: str
    name: str
    """`Kind/namespace/name`."""
    replicas: int | None
    """Wanted pods; None for a kind that is not known or does not state them."""
    unrest: str = ""
    """Why none of its pods had better be moved now; empty at rest."""


def workload_of(pod: Pod, known: Known) -> Workload | None:
    """Return the workload of a pod; None for a bare one."""
    owner = pod.metadata.controlled_by
    if owner is None:
        return None
    found = None
    # ReplicaSet to Deployment, CloneSet to UnitedDeployment; more levels are not known, and a circle ends.
    for _ in range(4):
        entry = known.get(owner.uid)
        if entry is None:
            break
        found = entry
        above = entry[1].metadata.controlled_by
        if above is None or above.uid not in known:
            break
        owner = above
    name = f"{owner.kind}/{pod.metadata.namespace}/{owner.name}"
    if found is None:
        return Workload(owner.uid, name, None)
    kind, it = found
    return Workload(owner.uid, name, replicas_of(kind, it), unrest(kind, it))


def replicas_of(kind: str, it: AnyWorkload) -> int | None:
    """Return the number of pods that a workload wants; None where its kind's scale path leads to no number."""
    if isinstance(it, ScaledObject):
        return _number_at(it, it.paths.wanted)
    stated = it.spec.parallelism if kind == "Job" else it.spec.replicas
    return 1 if stated is None else stated


def unrest(kind: str, it: AnyWorkload) -> str:
    """Return why a workload is not at rest: deleted, changed, scaled or updated just now."""
    if it.metadata.deletion_timestamp:
        return "it is being deleted"
    if kind == "Job":
        return ""
    wanted = replicas_of(kind, it)
    if isinstance(it, ScaledObject):
        seen, present = _number_at(it, ".status.observedGeneration"), _number_at(it, it.paths.present)
    else:
        seen, present = it.status.observed_generation, it.status.replicas
    if seen is not None and seen < it.metadata.generation:
        return "its controller has not seen its latest change"
    if present != wanted:
        return f"it scales from {'no stated number' if present is None else present} to {wanted} pods"
    if isinstance(it, ScaledObject) or wanted is None or _held_back(it):
        return ""
    updated = it.status.updated_replicas
    if updated is not None and updated < wanted and (kind == "Deployment" or _revisions_differ(it)):
        return f"{updated} of {wanted} pods are updated"
    return ""


def _number_at(it: ScaledObject, path: str) -> int | None:
    """Return the number at a path of names; None where there is none."""
    _, top, *names = path.split(".")
    found: Any = it.spec if top == "spec" else it.status
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _revisions_differ(it: WorkloadObject) -> bool:
    status = it.status
    return bool(status.update_revision) and status.update_revision != status.current_revision


def _held_back(it: WorkloadObject) -> bool:
    """Return whether a part of the update waits on purpose, which may last for weeks."""
    strategy = it.spec.update_strategy
    if it.spec.paused or (strategy is not None and strategy.paused):
        return True
    if strategy is None:
        return False
    partitions = [strategy.partition, strategy.rolling_update.partition if strategy.rolling_update else None]
    return any(each not in (None, 0, "0", "0%") for each in partitions)


def most_at_once(stated: int | str | None, replicas: int) -> int:
    """Return how many pods of a workload may be away at once, of a number, a percent or nothing stated.

    Koordinator's defaults: a tenth above 10 replicas, 2 from 4 on, else 1; at least 1, at most all.
    """
    if stated is None:
        chosen = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(stated, int):
        chosen = stated
    else:
        percent = stated.removesuffix("%")
        chosen = replicas * int(percent) // 100 if percent.isdecimal() and len(percent) < 4 else 1
    return max(1, min(chosen, replicas))


def is_kind(owner: OwnerReference | None, kind: str) -> bool:
    """Return whether an owner is of a kind."""
    return owner is not None and owner.kind == kind
