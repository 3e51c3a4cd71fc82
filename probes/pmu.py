"""Cycles, instructions and last-level cache references and misses for each cgroup.

Columns of the dense table: `pmu.cycles`, `pmu.instructions`, `pmu.llc_references`, `pmu.llc_misses` (scaled for
multiplexing; a quantity this CPU has no event for has no column), `pmu.enabled_ns` and `pmu.running_ns`, how long
the events were wanted and how long the least favoured of them ran: their ratio says how much is estimate.

The events count for whole CPUs and are read when a CPU passes from one cgroup to another. On a 2-CPU AMD EPYC guest
with four software events standing in (two of them clocks), a switch between cgroups costs about 500 ns and one inside
a cgroup 70 ns, 58 ns of either being an empty program (`python -m bench.probe_cost pmu`). With a focus, switches
between cgroups outside it read no event and cost a quarter, and without any cgroup in it the program is detached;
rows are then of cgroups in the focus only, and floats from then on. A read interrupts each busy CPU to charge what
still runs there, but for isolated ones (`isolcpus`, `nohz_full`), whose tasks are charged when they are switched away.

Option `[probes.options.pmu] stand_in = true` opens software events in place of the hardware's, to try the plumbing on
a host without a PMU: cycles and instructions are then nanoseconds on the CPU, references minor page faults, and
misses switches into the cgroup.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.cpuset import parse_cpuset
from api.frame import CGROUP, Reading, Table
from api.plugin import Unsupported
from probes.bpf_object import BpfObject
from probes.libbpf import BpfError, possible_cpus
from probes.perf_event import perf_event_open
from probes.pmu_events import QUANTITIES, STAND_IN, EventSet, PerfEvent, detect, directed, hybrid_pmu_types
from probes.pmu_scaling import Estimates, EventTimes, ScaledCounts
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object

ROOT = Path("/")
ONLINE = Path("sys/devices/system/cpu/online")
UNDISTURBED = ("isolated", "nohz_full")
"""Files in the directory of `ONLINE` that list CPUs which are kept free of all that their tasks do not ask for."""

EVENTS = len(QUANTITIES)
U64 = np.dtype(np.uint64)
CGROUP_RECORD = np.dtype([("counts", U64, (EVENTS,)), ("enabled_ns", U64)])
CPU_RECORD = np.dtype(
    [
        ("cgroup", U64),
        ("since_ns", U64),
        ("passes", U64),
        ("known", U64),
        ("base", U64, (EVENTS,)),
        ("enabled_ns", U64, (EVENTS,)),
        ("running_ns", U64, (EVENTS,)),
    ]
)
U32 = np.dtype(np.uint32)
LOST_PLACES = ("pmu.cgroup", "pmu.read", "pmu.unseen_ns")


class Pmu(BpfProbe):
    """Needs tp_btf, a PMU, and programs run on a chosen CPU (kernel 5.10 and later)."""

    name: ClassVar[str] = "pmu"
    focusable: ClassVar[bool] = True
    options: ClassVar = {"stand_in": False}
    records: ClassVar = {"pmu_cgroup": CGROUP_RECORD, "pmu_cpu": CPU_RECORD}

    def __init__(self, bpf: BpfObject, events: dict[str, PerfEvent], root: Path = ROOT) -> None:
        super().__init__(bpf)
        self._object = bpf
        self._events = events
        self._root = root
        self._hybrid = hybrid_pmu_types(root)
        self._arrays = {name: bpf.map(name, U32, U32) for name in events}
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._cpus = bpf.map("cpus", U32, CPU_RECORD)
        self._lost = bpf.map("lost", U32, U64)
        self._scaled = ScaledCounts(possible_cpus(), EVENTS)
        self._online: frozenset[int] = frozenset()
        self._undisturbed = undisturbed_cpus(root)
        self._passes = np.zeros(possible_cpus(), dtype=np.uint64)
        self._focused = bpf.map("focused", U64, U32)
        self._filtering = bpf.map("filtering", U32, U32)
        self._focus: NDArray[np.uint64] | None = None
        self._as_floats = False
        self._link = -1

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Pmu":
        """Count this CPU's events, or the stand-ins where the option says so."""
        stand_in = limits.option("pmu", "stand_in", False)
        return cls.open_events(kernel, limits, STAND_IN if stand_in else detect(ROOT))

    @classmethod
    def open_events(cls, kernel: Kernel, limits: ProbeLimits, wanted: EventSet) -> "Pmu":
        """Count the events of `wanted` that this host has; raises Unsupported without cycles."""
        kernel.require_tracepoints("sched_switch")
        events = available(wanted, hybrid_pmu_types(ROOT))
        bpf = open_object(cls.image(), kernel)
        for name in (*QUANTITIES, "cpus"):
            bpf.resize(name, possible_cpus())
        bpf.resize("cgroups", limits.max_cgroups)
        bpf.resize("focused", limits.max_cgroups)
        bpf.set_rodata({"open_events": sum(1 << bit for bit, name in enumerate(QUANTITIES) if name in events)})
        load(bpf)
        probe = cls(bpf, events)
        try:
            probe._follow_hotplug()
        except BpfError as error:
            probe.close()
            raise Unsupported(f"perf events cannot be opened on every CPU: {error}") from error
        (probe._link,) = attach(bpf, "on_switch")
        return probe

    def read(self) -> Reading:
        if self._link < 0:
            return Reading(lost=self._losses())
        self._follow_hotplug()
        times = self._settle()
        ids, values = self._cgroups.read()
        ids = ids.copy()
        raw = np.ascontiguousarray(values).view(U64).reshape(len(ids), possible_cpus(), EVENTS + 1)
        table = Table({"cgroup": ids}, self._columns(self._scaled.advance(ids, raw, times)))
        if self._focus is not None:
            table = table.take(np.isin(ids, self._focus))
        if self._as_floats:
            table = Table(table.keys, {name: column.astype(np.float64) for name, column in table.columns.items()})
        return Reading({CGROUP: table}, self._losses())

    def _losses(self) -> dict[str, int]:
        _, lost = self._lost.read()
        return dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True))

    def focus(self, ids: NDArray[np.uint64] | None) -> None:
        """Charge what is measured so far, then go on with these cgroups; with none of them the program is detached."""
        if self._link >= 0:
            self._settle_all()
        if ids is not None and not len(ids):
            self._detach()
        else:
            self._begin(ids)
        self._focus = None if ids is None else ids.copy()
        # For good: what was not measured in one frame is a NaN, which an integer of the next cannot be compared with.
        self._as_floats |= ids is not None

    def _begin(self, ids: NDArray[np.uint64] | None) -> None:
        """Read the holder of each CPU anew: a cgroup that comes into focus now ran unseen until now."""
        for cpu in range(possible_cpus()):
            self._cpus.update(cpu, np.zeros((), dtype=CPU_RECORD))
        if ids is not None:
            self._look_only_at(ids)
        self._filtering.update(0, np.array(ids is not None, dtype=np.uint32))
        if self._link < 0:
            self._link = self._object.attach("on_switch")
        self._settle_all()

    def _look_only_at(self, ids: NDArray[np.uint64]) -> None:
        known, _ = self._focused.read()
        self._focused.delete(np.setdiff1d(known, ids))
        for identity in np.setdiff1d(ids, known).tolist():
            self._focused.update(identity, np.ones((), dtype=np.uint32))
        # A cgroup that left the focus takes no room from one that came, and counts from zero when it is back.
        counted, _ = self._cgroups.read()
        self._cgroups.delete(np.setdiff1d(counted, ids))
        self._scaled.keep(ids)

    def _detach(self) -> None:
        if self._link >= 0:
            self._object.release(self._link)
            self._link = -1

    def _settle_all(self) -> None:
        self._follow_hotplug()
        for cpu in sorted(self._online - self._undisturbed):
            self._settle_cpu(cpu)

    def _columns(self, estimates: Estimates) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {
            f"pmu.{name}": estimates.counts[:, row] for row, name in enumerate(QUANTITIES) if name in self._events
        }
        columns["pmu.enabled_ns"] = estimates.enabled_ns
        columns["pmu.running_ns"] = estimates.running_ns
        return columns

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)

    def _settle(self) -> EventTimes:
        """Charge the slices that still run and read the events' times, on each CPU that was not idle all along.

        That interrupts the CPU, so isolated ones are left alone: what runs there is charged when it is switched away.
        """
        _, states = self._cpus.read()
        for cpu in np.flatnonzero((states["cgroup"] != 0) | (states["passes"] != self._passes)).tolist():
            if cpu not in self._undisturbed:
                self._settle_cpu(cpu)
        _, states = self._cpus.read()
        self._passes = states["passes"].copy()
        return EventTimes(states["enabled_ns"], states["running_ns"])

    def _settle_cpu(self, cpu: int) -> None:
        try:
            self._object.run("settle", cpu)
        except BpfError as error:
            if error.errno != errno.ENXIO:  # went offline meanwhile
                raise

    def _follow_hotplug(self) -> None:
        """Open the events of CPUs that came online: the kernel drops a CPU's events when it goes offline."""
        online = parse_cpuset((self._root / ONLINE).read_text())
        for cpu in sorted(online - self._online):
            self._open_cpu(cpu)
            self._settle_cpu(cpu)
        self._online = online

    def _open_cpu(self, cpu: int) -> None:
        """Put one CPU's events into the arrays, which keep them open: no descriptor stays behind.

        They are not grouped: a group that finds too few free counters does not run at all.
        """
        for name, event in self._events.items():
            fd = _open_event(directed(event, self._hybrid.get(cpu)), cpu)
            self._arrays[name].update(cpu, np.array(fd, dtype=np.uint32))
            os.close(fd)


def undisturbed_cpus(root: Path) -> frozenset[int]:
    """CPUs that the kernel was started to keep undisturbed (`isolcpus`, `nohz_full`)."""
    found: frozenset[int] = frozenset()
    for name in UNDISTURBED:
        with contextlib.suppress(OSError):
            found |= parse_cpuset((root / ONLINE.with_name(name)).read_text().replace("(null)", ""))
    return found


def _open_event(event: PerfEvent, cpu: int) -> int:
    return perf_event_open(event.kind, event.config, cpu=cpu)


def available(wanted: EventSet, hybrid: dict[int, int]) -> dict[str, PerfEvent]:
    """The events of `wanted` that open on this CPU; raises Unsupported if there are no cycles among them."""
    cpu = next(iter(sorted(os.sched_getaffinity(0))))
    found: dict[str, PerfEvent] = {}
    for name in QUANTITIES:
        event = wanted.event(name)
        if event is None:
            continue
        try:
            os.close(_open_event(directed(event, hybrid.get(cpu)), cpu))
        except BpfError as error:
            if name == "cycles":
                raise _no_pmu(error) from error
            continue
        found[name] = event
    return found


def _no_pmu(error: BpfError) -> Unsupported:
    if error.errno in (errno.EPERM, errno.EACCES):
        return Unsupported(
            f"perf events are refused: {error.strerror}",
            "run as root or with CAP_PERFMON, and check kernel.perf_event_paranoid",
        )
    return Unsupported(
        f"the CPU offers no cycle counter: {error.strerror}",
        "run on bare metal, or let the hypervisor expose a virtual PMU",
    )
