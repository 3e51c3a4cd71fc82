"""Capabilities of this host, probed once a minute; CPUs and quotas of single cgroups, read once a tick."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from api.cpuset import parse_cpuset
from api.frame import CgroupInfo
from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.cgroups.processes import first_pid_below
from koordlet.host.files import HostTree
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.host.knobs.table import KNOBS
from koordlet.host.topology import bfq_disks, cpu_places, disks
from koordlet.response.host_capabilities import CacheCapabilities, CgroupReads, HostCapabilities
from koordlet.response.observation import Floats

_EVERY_TICKS = 60
_NEW_WEIGHTS = 200
"""Weights read in one tick of cgroups that are new."""
_SHARES_PER_WEIGHT = 1024 / 100
_LEAST_WEIGHT = 3 / _SHARES_PER_WEIGHT
"""Of a cgroup with cpu.idle (WEIGHT_IDLEPRIO of kernel/sched/sched.h), for which cgroup v2 reads 0."""
_MOST_SAMPLES = 16


class CapabilityReader:
    """Reader of the values that a decision needs; keeps those that do not change from tick to tick."""

    def __init__(self, tree: HostTree, knobs: Knobs, own: str) -> None:
        """`own` is the path of the agent's own cgroup."""
        self._tree = tree
        self._knobs = knobs
        self._own = own
        self._known: HostCapabilities | None = None
        self._ticks = 0
        self._weights: dict[int, float] = {}
        self._turn = 0
        self._weight_files = [("cpu.weight", 1.0), ("cpu.shares", _SHARES_PER_WEIGHT)]
        """The one that was there last is first."""

    def weights(self, cgroups: Sequence[CgroupInfo], held: Collection[str] = ()) -> Floats:
        """Return the cpu.weight of each cgroup, NaN where it is not known yet; each is read anew about once a minute.

        Cgroups whose weight the response holds lowered (`held`) keep the weight that they had before.
        """
        new = [info for info in cgroups if info.id not in self._weights][:_NEW_WEIGHTS]
        count = -(-len(cgroups) // _EVERY_TICKS)
        start = self._turn * count % max(len(cgroups), 1)
        self._turn += 1
        for info in [*new, *cgroups[start : start + count]]:
            if info.path not in held:
                self._weights[info.id] = self._weight_of(info.path)
        if len(self._weights) > 2 * len(cgroups) + _NEW_WEIGHTS:
            self._weights = {info.id: self._weights[info.id] for info in cgroups if info.id in self._weights}
        return np.array([self._weights.get(info.id, np.nan) for info in cgroups], dtype=np.float64)

    def _weight_of(self, path: str) -> float:
        try:
            directory = self._knobs.directory("cpu", path)
        except (Unsupported, CgroupGone):
            return np.nan
        for position, (name, factor) in enumerate(self._weight_files):
            text = _text(directory / name)
            if text.isdigit():
                if position:
                    self._weight_files.reverse()  # cgroup v1 has no other
                return max(int(text) / factor, _LEAST_WEIGHT)
        return np.nan

    def host(self, cgroups: Sequence[CgroupInfo]) -> HostCapabilities:
        """Return what was found within the last minute, without any cgroup's own values."""
        if self._known is None or self._ticks % _EVERY_TICKS == 0:
            self._known = self._ask(cgroups)
        self._ticks += 1
        return self._known

    def with_cgroups(self, host: HostCapabilities, reads: CgroupReads) -> HostCapabilities:
        """Return `host` with the values of these cgroups, read now and once each."""
        return replace(
            host,
            cgroup_cpus={path: self._cpus_of(path) for path in sorted(reads.cpus)},
            cgroup_quota_us={path: self._quota_us_of(path) for path in sorted(reads.quota)},
        )

    def _ask(self, cgroups: Sequence[CgroupInfo]) -> HostCapabilities:
        places = cpu_places(self._tree)
        samples = _samples(cgroups, self._own)
        return HostCapabilities(
            knobs=frozenset(knob for knob in KNOBS if any(self._can(knob, sample) for sample in samples)),
            cpus=tuple(place.id for place in places),
            cores={place.id: place.core for place in places},
            nodes={place.id: place.node for place in places},
            disks=disks(self._tree),
            weighing_disks=bfq_disks(self._tree) | self._costed_disks(),
            own=self._own,
            caches=caches(self._knobs.resctrl),
        )

    def _can(self, knob: Knob, sample: str) -> bool:
        try:
            self._knobs.assignments(knob, sample, KNOBS[knob].probe)
        except Unsupported:
            return False
        except (CgroupGone, OSError, ValueError):
            return True  # this one cgroup has another problem; the knob exists
        return True

    def _costed_disks(self) -> frozenset[str]:
        """Return disks that io.cost divides by weight: `8:0 enable=1 ...` lines of the root cgroup."""
        try:
            lines = _text(self._knobs.directory("io", "/") / "io.cost.qos").splitlines()
        except (Unsupported, CgroupGone):
            return frozenset()
        return frozenset(line.split()[0] for line in lines if "enable=1" in line.split())

    def _cpus_of(self, path: str) -> frozenset[int]:
        """Return the CPUs that a cgroup's first process may run on, by cpuset or by affinity; empty if not known."""
        try:
            pid = first_pid_below(self._knobs.directory("cpu", path))
            status = self._tree.text(f"/proc/{pid}/status") if pid else None
        except (Unsupported, CgroupGone, OSError):
            return frozenset()
        for line in (status or "").splitlines():
            if line.startswith("Cpus_allowed_list:"):
                return parse_cpuset(line.partition(":")[2])
        return frozenset()

    def _quota_us_of(self, path: str) -> int | None:
        """Return the CPU quota in the cgroup's file; None without one."""
        try:
            quota = current(self._knobs, Knob.CPU_MAX, path).partition(" ")[0]
        except (Unsupported, CgroupGone, OSError, ValueError):
            return None
        return None if quota == "max" else int(quota)


def _samples(cgroups: Sequence[CgroupInfo], own: str) -> list[str]:
    """One cgroup of each top-level directory: on cgroup v1 services may be in fewer hierarchies than pods."""
    found: dict[str, str] = {}
    for info in cgroups:
        if info.path not in ("/", own):
            found.setdefault(info.path.split("/")[1], info.path)
    return list(found.values())[:_MOST_SAMPLES]


def caches(resctrl: Path) -> CacheCapabilities:
    """Return last-level cache and memory bandwidth from resctrl's info files; empty where it is not mounted."""
    schemata = _text(resctrl / "schemata")
    lines = {name.strip(): rest for name, _, rest in (line.partition(":") for line in schemata.splitlines())}
    l3, l2 = (_cache_name(level, lines) for level in ("L3", "L2"))
    bandwidth = resctrl / "info/MB"
    linear, step = _text(bandwidth / "delay_linear"), int(_text(bandwidth / "bandwidth_gran") or "10")
    return CacheCapabilities(
        l3_domains=_domains(lines.get(l3, "")),
        l3_mask=int(_text(resctrl / "info" / l3 / "cbm_mask") or "0", 16),
        l3_least_bits=int(_text(resctrl / "info" / l3 / "min_cbm_bits") or "1"),
        l2_domains=_domains(lines.get(l2, "")),
        l2_mask=int(_text(resctrl / "info" / l2 / "cbm_mask") or "0", 16),
        l2_least_bits=int(_text(resctrl / "info" / l2 / "min_cbm_bits") or "1"),
        bandwidth_domains=_domains(lines.get("MB", "")),
        bandwidth_step=step,
        bandwidth_least=int(_text(bandwidth / "min_bandwidth") or "10"),
        bandwidth_is_absolute=(linear == "0" and step == 1) or _is_above_percent(lines.get("MB", "")),
    )


def _cache_name(level: str, lines: Mapping[str, str]) -> str:
    """With code and data apart (CDP) both halves have the same domains and bits; the name of one stands for both."""
    return level if level in lines or f"{level}CODE" not in lines else f"{level}CODE"


def _is_above_percent(line: str) -> bool:
    """Whether the root group's figures are no percents: AMD counts 1/8 GB/s, `mba_MBps` MB/s."""
    return any(int(part.partition("=")[2]) > 100 for part in line.split(";") if part.partition("=")[2].strip())


def _domains(line: str) -> tuple[int, ...]:
    return tuple(int(assignment.partition("=")[0]) for assignment in line.split(";") if assignment.strip())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
