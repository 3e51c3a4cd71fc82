"""Files of cgroups: torn, vanished and forgotten ones; hierarchies that are not there."""

from pathlib import Path

import numpy as np
import pytest

from api.frame import CgroupInfo
from api.plugin import Unsupported
from koordlet.collectors import Host
from koordlet.collectors.cpustat import CpuStat
from koordlet.collectors.iostat import IoStat
from koordlet.collectors.memstat import MemStat
from koordlet.collectors.pressure import Pressure
from koordlet.host.cgroups.hierarchies import Hierarchies
from koordlet.host.files import HostTree
from tests.koordlet.collectors.hosts import A, B, columns, make_host
from tests.trees import make_tree


def test_a_torn_file_is_counted_and_never_a_number(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\nnr_per", "b/cpu.stat": "usage_usec 1\nnr_periods 0\n"})
    found, reading = columns(CpuStat.open(make_host(tmp_path, 2)), A, B)
    assert np.isnan(found["cpustat.usage_ns"][0])
    assert found["cpustat.usage_ns"][1] == 1000
    assert reading.lost["cpustat.malformed"] == 1


def test_a_vanished_cgroup_is_counted_and_forgotten(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\n"})
    collector = CpuStat.open(make_host(tmp_path, 2))
    _, reading = columns(collector, A, B)
    assert reading.lost["cpustat.vanished"] == 1
    collector.forget([A, B])
    assert np.isnan(columns(collector, B)[0]["cpustat.usage_ns"][0])
    collector.close()


def test_forgetting_keeps_the_others_rows(tmp_path: Path) -> None:
    infos = [CgroupInfo(100 + n, f"/c{n}", f"c{n}") for n in range(5)]
    for n, info in enumerate(infos):
        make_tree(tmp_path, {f"{info.path}/cpu.stat": f"usage_usec {n}\n"})
    collector = CpuStat.open(make_host(tmp_path, 2))
    columns(collector, *infos)
    collector.forget([infos[1], infos[4]])
    left = [infos[0], infos[2], infos[3]]
    assert columns(collector, *left)[0]["cpustat.usage_ns"] == [0, 2000, 3000]


def test_memory_without_a_controller_is_unsupported(tmp_path: Path) -> None:
    bare = Hierarchies(tmp_path, None, None, None, None, 1)
    for kind in (MemStat, IoStat, Pressure):
        with pytest.raises(Unsupported):
            kind.open(Host(HostTree(tmp_path), bare))
