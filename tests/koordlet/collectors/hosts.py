"""Hosts and cgroups that the tests of collectors read."""

from collections.abc import Mapping
from pathlib import Path

from api.frame import CGROUP, CgroupInfo, Reading
from koordlet.collectors import Collector, Host, Round
from koordlet.host.cgroups.hierarchies import Hierarchies
from koordlet.host.files import HostTree

A, B = CgroupInfo(11, "/a", "a"), CgroupInfo(12, "/b", "b")
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n"


def make_host(root: Path, version: int) -> Host:
    v1 = Hierarchies(root / "cpu", root / "cpuacct", root / "memory", root / "blkio", root / "unified", 1)
    v2 = Hierarchies(root, root, root, root, root, 2)
    return Host(HostTree(root), v1 if version == 1 else v2)


def columns(collector: Collector, *cgroups: CgroupInfo) -> tuple[Mapping[str, list[float]], Reading]:
    reading = collector.collect(Round(cgroups, cgroups))
    return {name: column.tolist() for name, column in reading.tables[CGROUP].columns.items()}, reading
