"""cpu.stat of each cgroup: quota periods, throttled periods and time, and usage where v2 has it there."""

from collections.abc import Sequence

from api.frame import CgroupInfo
from koordlet.collectors import FileCollector, Host, PerCgroupFile, Round
from koordlet.host.files import KeptFiles, flat_keyed

COLUMNS = ("cpustat.periods", "cpustat.throttled_periods", "cpustat.throttled_ns")

FORCED_IDLE = b"core_sched.force_idle_usec"


class CpuStat(FileCollector):
    """Quota of a cgroup and its own throttling, as opposed to time lost to neighbours.

    A cgroup that has a quota is read every tick, one that has none (its periods stand at 0) in turn.
    """

    source = "cpustat"

    def due(self, work: Round, file: PerCgroupFile) -> Sequence[CgroupInfo]:
        if self.source in work.each_tick or file is not self._per_cgroup[0]:
            return super().due(work, file)
        left_out = file.without_value() - {info.id for info in work.due}
        return [info for info in work.cgroups if info.id not in left_out]

    @classmethod
    def open(cls, host: Host) -> "CpuStat":
        """Works wherever there is a cpu hierarchy."""
        files = [PerCgroupFile(KeptFiles(host.hierarchies.cpu, "cpu.stat"), COLUMNS, parse_cpu_stat)]
        if host.hierarchies.version == 2:
            kept, used = KeptFiles(host.hierarchies.cpu, "cpu.stat"), (*COLUMNS, "cpustat.usage_ns")
            root = KeptFiles(host.hierarchies.cpu, "cpu.stat")  # a root without the file is no cgroup that vanished
            has_forced_idle = FORCED_IDLE in (root.read("/") or b"")
            root.close()
            if has_forced_idle:
                files = [PerCgroupFile(kept, (*used, "cpustat.forced_idle_ns"), parse_cpu_stat_of_cores)]
            else:
                files = [PerCgroupFile(kept, used, parse_cpu_stat_v2)]
        elif host.hierarchies.cpuacct:
            files.append(
                PerCgroupFile(KeptFiles(host.hierarchies.cpuacct, "cpuacct.usage"), ("cpustat.usage_ns",), parse_usage)
            )
        return cls(files)


def parse_cpu_stat(content: bytes) -> tuple[float, float, float]:
    """v1: periods, throttled periods, throttled ns (throttled_time is in ns)."""
    stat = flat_keyed(content)
    return stat[b"nr_periods"], stat[b"nr_throttled"], stat[b"throttled_time"]


def parse_cpu_stat_v2(content: bytes) -> tuple[float, float, float, float]:
    """v2: the same from usec fields (absent in the root, which has no quota), and usage in ns."""
    stat = flat_keyed(content)
    return (
        stat.get(b"nr_periods", 0),
        stat.get(b"nr_throttled", 0),
        stat.get(b"throttled_usec", 0) * 1000,
        stat[b"usage_usec"] * 1000,
    )


def parse_cpu_stat_of_cores(content: bytes) -> tuple[float, ...]:
    """v2, in a kernel with core scheduling: the same, and the hardware threads' time that was kept idle in ns."""
    return (*parse_cpu_stat_v2(content), flat_keyed(content)[FORCED_IDLE] * 1000)


def parse_usage(content: bytes) -> tuple[float]:
    """v1 cpuacct.usage: nanoseconds of CPU time."""
    return (int(content),)
