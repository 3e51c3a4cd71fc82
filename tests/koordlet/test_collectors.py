"""Collectors on made trees: columns, vanished and torn files, v1 and v2."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Reading
from api.plugin import Unsupported
from koordlet.collectors import Collector, Host, Round
from koordlet.collectors.cpustat import CpuStat, parse_cpu_stat, parse_cpu_stat_v2
from koordlet.collectors.hostwide import HostWide, parse_proc_stat
from koordlet.collectors.iostat import IoStat, parse_blkio, parse_io_stat
from koordlet.collectors.memstat import MemStat, parse_limit, parse_memory_stat
from koordlet.collectors.pressure import Pressure, parse_pressure
from koordlet.host.cgroups.hierarchies import Hierarchies
from koordlet.host.files import HostTree
from tests.trees import make_tree

A, B = CgroupInfo(11, "/a", "a"), CgroupInfo(12, "/b", "b")
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n"


def host(root: Path, version: int) -> Host:
    v1 = Hierarchies(root / "cpu", root / "cpuacct", root / "memory", root / "blkio", root / "unified", 1)
    v2 = Hierarchies(root, root, root, root, root, 2)
    return Host(HostTree(root), v1 if version == 1 else v2)


def columns(collector: Collector, *cgroups: CgroupInfo) -> tuple[Mapping[str, list[float]], Reading]:
    reading = collector.collect(Round(cgroups, cgroups))
    return {name: column.tolist() for name, column in reading.tables[CGROUP].columns.items()}, reading


def test_cpu_stat_v1(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "cpu/a/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 77\n",
            "cpuacct/a/cpuacct.usage": "5000\n",
        },
    )
    found, _ = columns(CpuStat.open(host(tmp_path, 1)), A)
    assert found == {
        "cpustat.periods": [10],
        "cpustat.throttled_periods": [4],
        "cpustat.throttled_ns": [77],
        "cpustat.usage_ns": [5000],
    }


def test_cpu_stat_v2_is_in_ns_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\nnr_periods 1\nnr_throttled 1\nthrottled_usec 3\n"})
    found, _ = columns(CpuStat.open(host(tmp_path, 2)), A)
    assert found["cpustat.throttled_ns"] == [3000]
    assert found["cpustat.usage_ns"] == [9000]


def test_only_cgroups_with_a_quota_are_read_out_of_turn(tmp_path: Path) -> None:
    for name, periods in (("a", 5), ("b", 0)):
        make_tree(tmp_path, {f"{name}/cpu.stat": f"usage_usec 1\nnr_periods {periods}\nnr_throttled 0\n"})
    collector = CpuStat.open(host(tmp_path, 2))
    collector.collect(Round((A, B), (A, B)))
    for name in ("a", "b"):
        (tmp_path / name / "cpu.stat").write_text("usage_usec 2\nnr_periods 9\nnr_throttled 0\n")
    found = collector.collect(Round((A, B), ())).tables[CGROUP].columns["cpustat.periods"]
    assert found.tolist() == [9, 0]


def test_a_torn_file_is_counted_and_never_a_number(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\nnr_per", "b/cpu.stat": "usage_usec 1\nnr_periods 0\n"})
    found, reading = columns(CpuStat.open(host(tmp_path, 2)), A, B)
    assert np.isnan(found["cpustat.usage_ns"][0])
    assert found["cpustat.usage_ns"][1] == 1000
    assert reading.lost["cpustat.malformed"] == 1


def test_a_vanished_cgroup_is_counted_and_forgotten(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\n"})
    collector = CpuStat.open(host(tmp_path, 2))
    _, reading = columns(collector, A, B)
    assert reading.lost["cpustat.vanished"] == 1
    collector.forget([A, B])
    assert np.isnan(columns(collector, B)[0]["cpustat.usage_ns"][0])
    collector.close()


def test_forgetting_keeps_the_others_rows(tmp_path: Path) -> None:
    infos = [CgroupInfo(100 + n, f"/c{n}", f"c{n}") for n in range(5)]
    for n, info in enumerate(infos):
        make_tree(tmp_path, {f"{info.path}/cpu.stat": f"usage_usec {n}\n"})
    collector = CpuStat.open(host(tmp_path, 2))
    columns(collector, *infos)
    collector.forget([infos[1], infos[4]])
    left = [infos[0], infos[2], infos[3]]
    assert columns(collector, *left)[0]["cpustat.usage_ns"] == [0, 2000, 3000]


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        pytest.param(b"max\n", float("inf"), id="v2-unlimited"),
        pytest.param(b"9223372036854771712\n", float("inf"), id="v1-unlimited"),
        pytest.param(b"4096\n", 4096.0, id="limited"),
    ],
)
def test_memory_limit(content: bytes, limit: float) -> None:
    assert parse_limit(content) == (limit,)


def test_memory_stat_of_both_versions() -> None:
    v1 = b"cache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\ntotal_pgmajfault 3\ntotal_workingset_refault_file 4\n"
    v2 = b"anon 20\nfile 10\npgmajfault 3\nworkingset_refault_anon 1\nworkingset_refault_file 3\n"
    assert tuple(parse_memory_stat(v1)) == tuple(parse_memory_stat(v2)) == (4, 3, 10, 20)


def test_memory_without_a_controller_is_unsupported(tmp_path: Path) -> None:
    bare = Hierarchies(tmp_path, None, None, None, None, 1)
    for kind in (MemStat, IoStat, Pressure):
        with pytest.raises(Unsupported):
            kind.open(Host(HostTree(tmp_path), bare))


def test_io_of_both_versions() -> None:
    assert parse_io_stat(b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=9 dios=9\n8:16 rbytes=10 wios=1\n") == (
        11,
        2,
        3,
        5,
    )
    assert parse_io_stat(b"") == (0, 0, 0, 0)
    assert parse_blkio(b"8:0 Read 5\n8:0 Write 6\n8:0 Sync 11\n8:0 Total 11\nTotal 11\n") == (5, 6)


def test_pressure(tmp_path: Path) -> None:
    assert parse_pressure(PSI.encode()) == (123, 45)
    assert parse_pressure(PSI.encode().splitlines(keepends=True)[0]) == (123, 0)
    make_tree(tmp_path, {"proc/pressure/cpu": PSI, "cpu.pressure": PSI})
    for resource in ("cpu", "memory", "io"):
        make_tree(tmp_path, {f"a/{resource}.pressure": PSI})
    found, _ = columns(Pressure.open(host(tmp_path, 2)), A)
    assert found["pressure.memory_full_us"] == [45]


def test_pressure_switched_off_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="PSI"):
        Pressure.open(host(tmp_path, 2))


def test_hostwide(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:  100 kB\nMemAvailable:  40 kB\nHugePages_Total: 0\n",
            "proc/vmstat": "pgsteal_kswapd 7\nallocstall_normal 3\n",
            "proc/stat": "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 0 5 100 0 2 3 4 0 0\n",
            "proc/pressure/cpu": PSI,
        },
    )
    reading = HostWide.open(host(tmp_path, 2)).collect(Round((), ()))
    values = {name: column.tolist() for name, column in reading.tables["host"].columns.items()}
    assert values["hostwide.memory_available_bytes"] == [40 * 1024]
    assert values["hostwide.cpu_some_us"] == [123]
    cpus = reading.tables["host.cpu"]
    assert cpus.columns["hostcpu.steal_ns"].tolist() == [40_000_000]
    assert parse_proc_stat("") is None


def test_bad_stat_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="words"):
        parse_cpu_stat(b"nr_periods")
    with pytest.raises(KeyError):
        parse_cpu_stat_v2(b"nr_periods 1\n")
