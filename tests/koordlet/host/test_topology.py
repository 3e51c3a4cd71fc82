"""CPUs and disks by the host's files."""

from pathlib import Path

import pytest

from koordlet.host.files import HostTree
from koordlet.host.topology import (
    CpuCaches,
    CpuPlace,
    NumaMemory,
    bfq_disks,
    cpu_caches,
    cpu_places,
    disks,
    numa_memory,
    smt_active,
    turbo_active,
)
from tests.trees import make_tree


def test_siblings_share_a_core_and_nodes_are_read(tmp_path: Path) -> None:
    threads = {f"cpu{cpu}/topology/thread_siblings_list": siblings for cpu, siblings in enumerate(["0,2", "1,3"] * 2)}
    packages = {f"cpu{cpu}/topology/physical_package_id": str(cpu % 2) for cpu in range(4)}
    tree = {
        "/sys/devices/system/cpu": {"online": "0-3\n", **threads, **packages},
        "/sys/devices/system/node": {"online": "0-1\n", "node0/cpulist": "0,2\n", "node1/cpulist": "1,3\n"},
    }
    places = cpu_places(HostTree(make_tree(tmp_path, tree)))
    assert places == (CpuPlace(0, 0, 0, 0), CpuPlace(1, 1, 1, 1), CpuPlace(2, 0, 0, 0), CpuPlace(3, 1, 1, 1))


def test_without_topology_every_cpu_is_a_core(tmp_path: Path) -> None:
    host = HostTree(make_tree(tmp_path, {"/sys/devices/system/cpu/online": "0-1"}))
    assert [place.core for place in cpu_places(host)] == [0, 1]
    assert disks(host) == ()


def test_disks_are_devices_that_hold_something(tmp_path: Path) -> None:
    block = {"vda": ("254:0", "100"), "loop0": ("7:0", "0"), "loop1": ("7:1", "64"), "zram0": ("253:0", "8")}
    files = {
        f"{name}/{file}": text for name, pair in block.items() for file, text in zip(("dev", "size"), pair, strict=True)
    }
    assert disks(HostTree(make_tree(tmp_path, {"/sys/block": files}))) == ("7:1", "254:0")


def test_disks_that_bfq_serves(tmp_path: Path) -> None:
    files = {
        "sda/size": "8\n",
        "sda/dev": "8:0\n",
        "sda/queue/scheduler": "none mq-deadline [bfq]\n",
        "vda/size": "8\n",
        "vda/dev": "254:0\n",
        "vda/queue/scheduler": "[none] mq-deadline bfq\n",
        "dm-0/size": "8\n",
        "dm-0/dev": "253:0\n",
    }
    assert bfq_disks(HostTree(make_tree(tmp_path, {"/sys/block": files}))) == {"8:0"}


def test_caches_by_the_kernels_ids_or_by_who_shares_them(tmp_path: Path) -> None:
    def caches(cpu: int) -> dict[str, str]:
        return {
            "index0/level": "1\n", "index0/type": "Data\n", "index0/shared_cpu_list": f"{cpu}\n",
            "index1/level": "1\n", "index1/type": "Instruction\n", "index1/id": "99\n",
            "index2/level": "2\n", "index2/type": "Unified\n", "index2/shared_cpu_list": "0-1\n",
            "index3/level": "3\n", "index3/type": "Unified\n", "index3/id": "4\n",
        }  # fmt: skip

    tree = {"online": "0-2\n", "cpu0/cache": caches(0), "cpu1/cache": caches(1)}
    found = cpu_caches(HostTree(make_tree(tmp_path, {"/sys/devices/system/cpu": tree})))
    assert found == {0: CpuCaches(0, 0, 4), 1: CpuCaches(1, 0, 4), 2: CpuCaches(-1, -1, -1)}


def test_memory_of_numa_nodes(tmp_path: Path) -> None:
    pages = {"hugepages-2048kB/nr_hugepages": "3\n", "hugepages-1048576kB/nr_hugepages": "0\n"}
    nodes = {
        "online": "0-1\n",
        "node0": {"meminfo": "Node 0 MemTotal:    1024 kB\nNode 0 MemFree: 1 kB\n", "hugepages": pages},
        "node1": {"meminfo": "Node 1 MemTotal:    2048 kB\n"},
    }
    found = numa_memory(HostTree(make_tree(tmp_path, {"/sys/devices/system/node": nodes})))
    assert found == {0: NumaMemory(1 << 20, {2 << 20: 6 << 20}), 1: NumaMemory(2 << 20, {})}


def test_memory_without_numa_files(tmp_path: Path) -> None:
    host = HostTree(make_tree(tmp_path, {"/proc/meminfo": "MemTotal:  4 kB\n"}))
    assert numa_memory(host) == {0: NumaMemory(4096, {})}
    assert numa_memory(HostTree(tmp_path / "empty")) == {}


@pytest.mark.parametrize(
    ("files", "smt", "turbo"),
    [
        pytest.param({"smt/active": "1\n", "intel_pstate/no_turbo": "0\n"}, True, True, id="intel"),
        pytest.param({"smt/active": "0\n", "intel_pstate/no_turbo": "1\n"}, False, False, id="intel-off"),
        pytest.param({"cpufreq/boost": "1\n"}, False, True, id="acpi"),
        pytest.param({"cpu0/topology/thread_siblings_list": "0-1", "cpu1/topology/thread_siblings_list": "0-1"},
                     True, False, id="by-siblings"),
    ],
)  # fmt: skip
def test_threads_and_turbo(tmp_path: Path, files: dict[str, str], smt: bool, turbo: bool) -> None:
    host = HostTree(make_tree(tmp_path, {"/sys/devices/system/cpu": {"online": "0-1\n", **files}}))
    assert (smt_active(host), turbo_active(host)) == (smt, turbo)
