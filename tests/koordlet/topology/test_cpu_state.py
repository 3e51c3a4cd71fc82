"""The state of the node's CPUs: read where a source changed, kept where one is torn."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from api.kube.numa import CpuDetail
from api.kube.objects import Node
from api.protocol import ANNOTATION_NODE_RESERVATION
from api.qos import QoSClass
from koordlet.host.files import HostTree
from koordlet.identity.pods import NO_PODS, Assigned, PodContainer, PodFacts, PodTable
from koordlet.topology.cpu_state import CpuStateReader, read_machine
from tests.trees import make_tree

STATE = "/var/lib/kubelet/cpu_manager_state"


@dataclass
class Configuration:
    """A kubelet's configuration."""

    cpu_manager_policy: str = "static"
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict)
    topology_manager_policy: str = "single-numa-node"
    topology_manager_scope: str = "pod"
    reserved_system_cpus: str = ""
    system_reserved: dict[str, int] = field(default_factory=lambda: {"cpu": 500})
    kube_reserved: dict[str, int] = field(default_factory=lambda: {"cpu": 250})


def make_host(root: Path) -> HostTree:
    """Four CPUs, a node each pair."""
    cpus = {"online": "0-3\n"} | {f"cpu{cpu}/topology/physical_package_id": str(cpu // 2) for cpu in range(4)}
    nodes = {"online": "0-1\n", "node0/cpulist": "0-1\n", "node1/cpulist": "2-3\n"}
    files = {
        "/sys/devices/system/cpu": cpus,
        "/sys/devices/system/node": nodes,
        "/sys/fs/resctrl/info/L3/cbm_mask": "7ff\n",
        "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nmodel name\t: Xeon  9\n",
        STATE: '{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"u1":{"main":"1"}}}',
    }
    return HostTree(make_tree(root, files))


def test_a_machine(tmp_path: Path) -> None:
    machine = read_machine(make_host(tmp_path))
    assert machine.cpus[2:] == (CpuDetail(id=2, core=2, socket=1, node=1), CpuDetail(id=3, core=3, socket=1, node=1))
    basic = machine.basic
    assert (basic.cpu_model, basic.vendor_id, basic.cat_l3_cbm_mask) == ("Xeon 9", "GenuineIntel", "7ff")
    assert not basic.hyper_thread_enabled


def test_all_sources_meet(tmp_path: Path) -> None:
    tables = [NO_PODS]
    node = msgspec.convert(
        {"metadata": {"name": "n", "annotations": {ANNOTATION_NODE_RESERVATION: '{"reservedCPUs":"2"}'}}}, Node
    )
    reader = CpuStateReader(make_host(tmp_path), lambda: tables[-1], node=lambda: node, kubelet=Configuration)
    state = reader.current()
    assert state.kubelet.reserved == {0}
    assert state.kubelet.alignment == "SingleNUMANodePodLevel"
    assert state.node.reserved == {2}
    assert state.pools.ls_cpus == {0, 3}
    tables.append(PodTable([PodFacts("a/b", QoSClass.LS, uid="u1")], generation=1))
    assert reader.current().pools.ls_cpus == {0, 1, 3}, "an LS pod runs in the pool whatever the kubelet wrote"


def test_the_same_state_is_the_same_object(tmp_path: Path) -> None:
    configuration = Configuration()
    reader = CpuStateReader(make_host(tmp_path), lambda: NO_PODS, kubelet=lambda: configuration)
    first = reader.current()
    assert reader.current() is first
    (tmp_path / STATE.lstrip("/")).write_text('{"entries":{}}')
    changed = reader.current()
    assert changed is not first
    assert changed.pools.ls_cpus == {0, 1, 2, 3}


def test_a_torn_state_file_keeps_what_was_known(tmp_path: Path) -> None:
    configuration = Configuration()
    reader = CpuStateReader(make_host(tmp_path), lambda: NO_PODS, kubelet=lambda: configuration)
    before = reader.current().pools
    (tmp_path / STATE.lstrip("/")).write_text('{"entries":{"u1"')
    assert reader.current().pools == before


def test_pod_resources_stand_in_for_a_state_file_that_cannot_be_seen(tmp_path: Path) -> None:
    container = PodContainer("main", assigned=Assigned(cpus=(2, 3)))
    table = PodTable([PodFacts("a/b", uid="u2", containers=(container,))], generation=1)
    configuration = Configuration()
    tree = make_host(tmp_path)
    (tmp_path / STATE.lstrip("/")).unlink()
    reader = CpuStateReader(tree, lambda: table, kubelet=lambda: configuration)
    assert reader.current().kubelet.exclusive == {"u2": {2, 3}}
    assert reader.current().pools.ls_cpus == {0, 1}


def test_without_a_kubelet_its_file_is_not_read(tmp_path: Path) -> None:
    assert CpuStateReader(make_host(tmp_path), lambda: NO_PODS).current().pools.ls_cpus == {0, 1, 2, 3}


def test_a_cpu_that_goes_offline_leaves_the_pools(tmp_path: Path) -> None:
    reader = CpuStateReader(make_host(tmp_path), lambda: NO_PODS)
    assert reader.current().pools.be_cpus == {0, 1, 2, 3}
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-2\n")
    assert reader.current().pools.be_cpus == {0, 1, 2}
