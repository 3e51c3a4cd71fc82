"""CPUs and disks by the host's files."""

from pathlib import Path

from koordlet.host.files import HostTree
from koordlet.host.topology import CpuPlace, bfq_disks, cpu_places, disks
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
