"""Samples of containers from a node's report of a pod, and OOM kills from the pod's own status. Pure.

A report states the use of a pod. It is shared among the pod's containers as they ask for it, which is exact for pods of
one container.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from api.crds.node_metric import PodUsage
from api.kube.interference import EXTENSION_THROTTLED, EXTENSION_WAITED, EXTENSION_WORKLOAD
from api.kube.resources import CPU, MEMORY, QuantityError, parse_quantity
from api.kube.times import epoch_seconds
from api.kube.workload import workload_named
from cluster.resources import Key
from controllers.kinds import Pod, PodContainer

OOM_KILLED = "OOMKilled"
_MOST_LOST = 1e4
"""Seconds a second that a report may state."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a report tells of a pod; NaN what it does not tell."""

    workload: str
    cores: float
    memory_bytes: float
    throttled: float
    """Seconds a second lost to the own quota."""
    waited: float
    """Seconds a second waited for CPUs that others held."""


class Sample(NamedTuple):
    """A container's part of it."""

    row: int
    """Of the workload."""
    container: str
    key: Key
    """Of the pod."""
    time: float
    cores: float
    memory_bytes: float
    throttled: float
    waited: float


class Kill(NamedTuple):
    """An OOM kill of a container."""

    container: str
    time: float
    requested_bytes: float


def told_of(each: PodUsage, key: Key) -> Told | None:
    """Return what a report tells of a pod; None for nothing, or what makes no sense: the node's account wrote it."""
    stated = each.extensions or {}
    workload = stated.get(EXTENSION_WORKLOAD)
    named = workload_named(workload) if isinstance(workload, str) else None
    if named is None or named.namespace != key.namespace:
        return None
    used = each.pod_usage.resources
    try:
        cores = parse_quantity(used[CPU], 1000) / 1000 if CPU in used else math.nan
        memory = float(parse_quantity(used[MEMORY])) if MEMORY in used else math.nan
    except QuantityError:
        return None
    throttled, waited = (_seconds(stated.get(name)) for name in (EXTENSION_THROTTLED, EXTENSION_WAITED))
    return Told(named.path, float(cores), memory, throttled, waited)


def samples_of(told: Told, spec: Pod, row: int, key: Key, time: float) -> Iterator[Sample]:
    """Return the parts of a pod's containers."""
    for container, cpu, memory in shares(containers_of(spec)):
        lost = (told.throttled * cpu, told.waited * cpu)
        yield Sample(row, container, key, time, told.cores * cpu, told.memory_bytes * memory, *lost)


def kills_of(pod: Pod) -> Iterator[Kill]:
    """Return the OOM kills that a pod's status names, of containers that run all the time."""
    ends = [
        (each.name, end)
        for each in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        for end in (each.last_state.terminated, each.state.terminated)
        if end is not None and end.reason == OOM_KILLED
    ]
    requested = {each.name: request_of(each, MEMORY) for each in containers_of(pod)} if ends else {}
    for name, end in ends:
        time = epoch_seconds(end.finished_at)
        if name in requested and time is not None:
            yield Kill(name, time, requested[name])


def containers_of(pod: Pod) -> list[PodContainer]:
    """Return the containers that run all the time: sidecars too."""
    return [*pod.spec.containers, *(each for each in pod.spec.init_containers if each.restart_policy == "Always")]


def shares(containers: Sequence[PodContainer]) -> list[tuple[str, float, float]]:
    """Return names and shares of the pod's CPU and memory: as requested, equal ones where nothing is."""
    if len(containers) == 1:
        return [(containers[0].name, 1.0, 1.0)]
    made = []
    amounts = [(request_of(each, CPU), request_of(each, MEMORY)) for each in containers]
    sums = [sum(column) for column in zip(*amounts, strict=True)] if amounts else []
    for container, own in zip(containers, amounts, strict=True):
        cpu, memory = (
            part / whole if whole > 0 else 1.0 / len(containers) for part, whole in zip(own, sums, strict=True)
        )
        made.append((container.name, cpu, memory))
    return made


def request_of(container: PodContainer, resource: str) -> float:
    """Return what a container asks for in millicores or bytes: its request, else its limit, else 0."""
    resources = container.resources
    text = resources.requests.get(resource, resources.limits.get(resource, 0))
    try:
        return float(max(parse_quantity(text, 1000 if resource == CPU else 1), 0))
    except QuantityError:
        return 0.0


def _seconds(stated: object) -> float:
    """Return seconds a second that a report states; NaN for anything else."""
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not math.isfinite(stated):
        return math.nan
    return min(max(float(stated), 0.0), _MOST_LOST)
