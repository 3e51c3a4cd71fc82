"""Ticks made in a test: cgroups with their run time, memory and class, and the host."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.frame import CGROUP, HOST, CgroupInfo, CgroupKind, Frame, Table
from api.verdicts import Verdict
from api.window import Window
from koordlet.identity.cgroup_names import name_cgroup
from koordlet.kube.usage_meter import THROTTLED, WAITED
from koordlet.tick import Tick

GIB = 1 << 30


@dataclass
class Node:
    """A node whose counters grow from tick to tick."""

    cores: Mapping[str, float]
    """Rate by path of a cgroup's own threads."""
    memory_bytes: Mapping[str, float]
    busy_cores: float = 2.0
    available_bytes: float = 6.0 * GIB
    probe: bool = True
    """Whether run times come from the probe, or from the CPU controller's clock in turn."""
    throttled: Mapping[str, float] | None = None
    """Seconds a second lost to the own quota by path; None where the probe does not run."""
    waited: Mapping[str, float] | None = None
    """The same of waits for others, half of them for the kernel."""
    turn: int = 10
    seconds: float = 1000.0

    def __post_init__(self) -> None:
        self._frames: list[Frame] = []
        self._steps = itertools.count()
        self._clock: dict[str, float] = {}

    def tick(self, seconds: float = 1.0, opened: Sequence[Verdict] = (), changes: Sequence[Verdict] = ()) -> Tick:
        """Let time pass and return the tick."""
        while len(self._frames) < 1:
            self._frame(0.0)
        self._frame(seconds)
        return Tick.of(Window(self._frames[-2:]), changes, tuple(opened))

    def _frame(self, seconds: float) -> None:
        self.seconds += seconds
        cgroups = self._cgroups()
        passed = self.seconds - 1000.0
        step = next(self._steps)
        ids = np.array([info.id for info in cgroups], dtype=np.uint64)
        columns: dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]] = {}
        if self.probe:
            columns["cpu.oncpu_ns"] = np.array(
                [int(self.cores.get(info.path, 0.0) * passed * 1e9) for info in cgroups], dtype=np.uint64
            )
        else:
            for row, info in enumerate(cgroups):
                if step % self.turn == row % self.turn:
                    below = sum(rate for path, rate in self.cores.items() if path.startswith(info.path))
                    self._clock[info.path] = below * passed * 1e9
            columns["cpustat.usage_ns"] = np.array([self._clock.get(info.path, math.nan) for info in cgroups])
        for names, lost in ((THROTTLED, self.throttled), (WAITED, self.waited)):
            for name in names if lost is not None else ():
                columns[name] = np.array(
                    [int((lost or {}).get(info.path, 0.0) / len(names) * passed * 1e9) for info in cgroups], np.uint64
                )
        memory = np.array([self.memory_bytes.get(info.path, math.nan) for info in cgroups])
        columns["memstat.without_cache_bytes"] = memory
        columns["memstat.usage_bytes"] = memory * 2
        host = {"hostwide.memory_total_bytes": np.array([8.0 * GIB])}
        host["hostwide.memory_available_bytes"] = np.array([self.available_bytes])
        host["hostwide.memory_free_bytes"] = np.array([1.0 * GIB])
        busy = np.array([int(self.busy_cores * passed * 1e9)], dtype=np.uint64)
        cpu = Table({"cpu": np.array([0], dtype=np.uint32)}, {"hostcpu.busy_ns": busy})
        tables = {CGROUP: Table({"cgroup": ids}, columns), HOST: Table({}, host), "host.cpu": cpu}
        wall_ns = int((1_700_000_000.0 + passed) * 1e9)
        self._frames = [*self._frames[-1:], Frame(int(self.seconds * 1e9), wall_ns, cgroups, tables)]

    def _cgroups(self) -> tuple[CgroupInfo, ...]:
        made = []
        for number, path in enumerate(sorted({*self.cores, *self.memory_bytes})):
            name = name_cgroup(path)
            kind = name.kind if name.kind is not CgroupKind.PLAIN else CgroupKind.PLAIN
            made.append(CgroupInfo(number + 1, path, name.name, kind=kind, pod_uid=name.pod_uid))
        return tuple(made)
