"""Memory away from the CPUs of its cgroup, on made hosts with two nodes."""

from pathlib import Path

import numpy as np
import pytest

from api.plugin import Unsupported
from koordlet.collectors import Host
from koordlet.collectors.numa import Numa, away_bytes, parse_numa_stat
from tests.koordlet.collectors.hosts import A, B, columns, make_host
from tests.trees import make_tree

GIB = 1 << 30
TWO_NODES = {
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  1048576 kB\n",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:  1048576 kB\n",
}
PAGES_V1 = "total=3 N0=2 N1=1\nanon=3 N0=2 N1=1\nhierarchical_anon=30 N0=20 N1=10\nhierarchical_file=4 N0=0 N1=4\n"


def host(root: Path, version: int, files: dict[str, str]) -> Host:
    make_tree(root, TWO_NODES | files)
    return make_host(root, version)


def test_memory_on_the_node_that_may_not_be_used_is_away(tmp_path: Path) -> None:
    stat = f"anon N0={GIB} N1={3 * GIB}\nfile N0=0 N1={GIB}\nkernel_stack N0=9 N1=9\n"
    files = {"a/memory.numa_stat": stat, "a/cpuset.cpus.effective": "0-1\n"}
    files |= {"b/memory.numa_stat": stat, "b/cpuset.cpus.effective": "0-3\n"}
    found, _ = columns(Numa.open(host(tmp_path, 2, files)), A, B)
    assert found == {"numa.away_bytes": [4 * GIB, 0], "numa.placed_bytes": [5 * GIB, 5 * GIB]}


def test_where_it_ran_since_the_last_reading_counts(tmp_path: Path) -> None:
    files = {"memory/a/memory.numa_stat": PAGES_V1, "cpuacct/a/cpuacct.usage_percpu": "900 900 10 10 \n"}
    collector = Numa.open(host(tmp_path, 1, files))
    first, _ = columns(collector, A)
    assert np.isnan(first["numa.away_bytes"]).all()
    (tmp_path / "cpuacct/a/cpuacct.usage_percpu").write_text("905 900 500 600 \n")
    second, _ = columns(collector, A)
    assert second == {"numa.away_bytes": [20 * 4096], "numa.placed_bytes": [34 * 4096]}
    third, _ = columns(collector, A)  # it did not run: what is known stays
    assert third == second


def test_a_torn_or_vanished_file_is_counted_and_keeps_the_row(tmp_path: Path) -> None:
    stat = "anon N0=4096 N1=0\nfile N0=0 N1=0\n"
    collector = Numa.open(host(tmp_path, 2, {"a/memory.numa_stat": stat, "a/cpuset.cpus.effective": "2-3\n"}))
    before, _ = columns(collector, A, B)
    (tmp_path / "a/memory.numa_stat").write_text("anon N0=40")
    after, reading = columns(collector, A, B)
    assert before["numa.away_bytes"][0] == after["numa.away_bytes"][0] == 4096
    assert (reading.lost["numa.malformed"], reading.lost["numa.vanished"]) == (1, 4)
    collector.forget([A])
    assert np.isnan(columns(collector, B)[0]["numa.away_bytes"]).all()
    collector.close()


def test_one_node_has_no_remote_memory(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="one NUMA node"):
        Numa.open(make_host(tmp_path, 2))


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        pytest.param({0: 1.0}, 30.0, id="elsewhere"),
        pytest.param({0: 0.85, 1: 0.15}, 0.0, id="on-both"),
        pytest.param({1: 0.95, 0: 0.05}, 10.0, id="mostly-on-one"),
    ],
)
def test_a_cgroup_is_away_from_a_node_that_it_hardly_runs_on(ran: dict[int, float], expected: float) -> None:
    assert away_bytes({0: 10.0, 1: 30.0}, ran) == expected


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"anon N0", id="torn"),
        pytest.param(b"anon N0=x\nfile N0=1", id="no-number"),
        pytest.param(b"anon M0=1\nfile N0=1", id="no-node"),
        pytest.param(b"\xff\n", id="no-text"),
    ],
)
def test_what_is_no_numa_stat_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_numa_stat(content)
