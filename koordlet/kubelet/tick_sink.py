"""The tick as a trigger of the pod source, and the source's own figures as columns of the frame."""

import numpy as np

from api.frame import HOST, CgroupInfo, CgroupKind, Reading, Table
from koordlet.identity.pods import PodTable
from koordlet.kubelet.source import PodSource, SourceStatus
from koordlet.tick import Tick


class TreeChanges:
    """Sink that pokes the source where the tree and the table differ: once for each difference, not in each tick."""

    def __init__(self, source: PodSource) -> None:
        self._source = source
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._generation = -1
        self._differences: frozenset[str] = frozenset()

    def __call__(self, tick: Tick) -> None:
        """Compare the newest frame's cgroups with the table."""
        table, cgroups = self._source.table(), tick.window.cgroups
        if cgroups is self._cgroups and table.generation == self._generation:
            return
        self._cgroups, self._generation = cgroups, table.generation
        found = differences(cgroups, table)
        if found - self._differences:
            self._source.poke()
        self._differences = found


def differences(cgroups: tuple[CgroupInfo, ...], table: PodTable) -> frozenset[str]:
    """Return ids of containers that have a cgroup and are not known to run, and of those that run without one."""
    present = {info.container_id for info in cgroups if info.kind is CgroupKind.CONTAINER and info.pod_uid}
    running = {
        each.id for pod in table.pods for each in pod.containers if each.running and each.id and each.cgroup_path
    }
    return frozenset(present ^ running)


def reading_of(table: PodTable, status: SourceStatus) -> Reading:
    """Return the source's figures as columns of the host's table."""
    containers = sum(each.running for pod in table.pods for each in pod.containers)
    figures = {
        "pods.count": len(table),
        "pods.containers": containers,
        "pods.unplaced": status.unplaced,
        "pods.unknown": status.unknown,
        "pods.problems": len(status.problems),
    }
    columns = {name: np.array([float(value)]) for name, value in figures.items()}
    if np.isfinite(status.age_seconds):
        columns["pods.age_seconds"] = np.array([status.age_seconds])
    counts = {
        f"pods.{name}": np.array([status.counters.get(name.removesuffix("_requests"), 0)], dtype=np.uint64)
        for name in ("kubelet_requests", "apiserver_requests", "runtime_requests", "pod_resources_requests", "relists")
    }
    return Reading({HOST: Table({}, {**columns, **counts})})
