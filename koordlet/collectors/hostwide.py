"""The host as a whole: steal, irq and softirq time for each CPU, memory, reclaim counters and PSI."""

from collections.abc import Sequence

import numpy as np

from api.frame import HOST, CgroupInfo, Column, Reading, Table
from koordlet.collectors import Collector, Host, Round
from koordlet.host.files import HostTree, flat_words
from koordlet.host.pressure import RESOURCES, parse_pressure
from koordlet.host.process_files import TICK_NS

_VMSTAT = {"hostwide.kswapd_steals": b"pgsteal_kswapd", "hostwide.direct_reclaims": b"allocstall_normal"}
_MEMINFO = {
    "hostwide.memory_total_bytes": "MemTotal",
    "hostwide.memory_available_bytes": "MemAvailable",
    "hostwide.memory_free_bytes": "MemFree",
}


class HostWide(Collector):
    """Some /proc files, read every tick."""

    def __init__(self, tree: HostTree) -> None:
        self._tree = tree

    @classmethod
    def open(cls, host: Host) -> "HostWide":
        """Works everywhere."""
        return cls(host.tree)

    def collect(self, work: Round) -> Reading:  # noqa: ARG002 - the host is one row, always due
        columns: dict[str, Column] = {}
        meminfo = _meminfo(self._tree.text("/proc/meminfo") or "")
        vmstat = flat_words((self._tree.text("/proc/vmstat") or "").encode())
        for column, key in _MEMINFO.items():
            if key in meminfo:
                columns[column] = np.array([float(meminfo[key])])
        for column, name in _VMSTAT.items():
            if name in vmstat:
                columns[column] = np.array([int(vmstat[name])], dtype=np.uint64)
        for resource in RESOURCES:
            content = self._tree.text(f"/proc/pressure/{resource}")
            if content:
                some, full = parse_pressure(content.encode())
                columns[f"hostwide.{resource}_some_us"] = np.array([some], dtype=np.uint64)
                columns[f"hostwide.{resource}_full_us"] = np.array([full], dtype=np.uint64)
        tables = {HOST: Table({}, columns)}
        cpus = parse_proc_stat(self._tree.text("/proc/stat") or "")
        if cpus is not None:
            tables["host.cpu"] = cpus
            columns["hostwide.cpus"] = np.array([float(len(cpus))])
            for what in ("busy", "steal"):
                columns[f"hostwide.{what}_ns"] = cpus.columns[f"hostcpu.{what}_ns"].sum(keepdims=True)
        return Reading(tables)

    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        """Keeps nothing for cgroups."""


def parse_proc_stat(text: str) -> Table | None:
    """Rows by CPU: busy, irq, softirq and steal time in ns, at the kernel's 10 ms grain."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0].startswith("cpu") and words[0] != "cpu" and len(words) >= 9:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words[1:9])
            rows.append((int(words[0][3:]), user + nice + system + irq + softirq, irq, softirq, steal))
    if not rows:
        return None
    values = np.array(rows, dtype=np.uint64)
    names = ("hostcpu.busy_ns", "hostcpu.irq_ns", "hostcpu.softirq_ns", "hostcpu.steal_ns")
    return Table(
        {"cpu": values[:, 0].astype(np.uint32)},
        {name: values[:, position + 1] * np.uint64(TICK_NS) for position, name in enumerate(names)},
    )


def _meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    found = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[key] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return found
