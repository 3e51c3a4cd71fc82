"""Device and NodeResourceTopology against the twin: written, kept, changed, and absent where nothing is asked."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.crds import DEVICE, NODE_RESOURCE_TOPOLOGY, definition_document
from api.kube.numa import ANNOTATION_CPU_SHARED_POOLS
from api.kube.objects import Node
from api.plugin import Unsupported
from api.protocol import ANNOTATION_NODE_RESERVATION, ANNOTATION_STOP
from cluster import CUSTOM_RESOURCE_DEFINITIONS, NODES, Backoff, Client, ClientSettings, Key, custom, merge_patch
from cluster.twin import Fault, FaultType, Twin
from koordlet.config import AgentSettings
from koordlet.devices.settings import DeviceSettings
from koordlet.host.files import HostTree
from koordlet.identity.pods import NO_PODS
from koordlet.kube.settings import ClusterSettings
from koordlet.outputs.node_reports import NodeReports, open_node_facts, open_node_reports
from koordlet.topology.cpu_state import CpuStateReader
from koordlet.topology.settings import TopologySettings
from tests.koordlet.devices.pci_trees import add_pci, add_rdma
from tests.koordlet.topology.test_cpu_state import Configuration, make_host
from tests.waiting import wait_for

NODE = Key("", "n1")
DEVICES = custom(DEVICE)
TOPOLOGIES = custom(NODE_RESOURCE_TOPOLOGY)
SETTINGS = AgentSettings(
    devices=DeviceSettings(report=True, gpus=False, interval_seconds=1.0), topology=TopologySettings(report=True)
)
RETRY = Backoff(initial_seconds=0.05, maximum_seconds=0.1)
HELD = ClientSettings(attempts=1, requests_per_second=100.0)


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        crds = [definition_document(each) for each in (DEVICE, NODE_RESOURCE_TOPOLOGY)]
        with running.client() as client:
            for crd in crds:
                client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        running.load(NODES, [{"metadata": {"name": NODE.name}}])
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client(HELD) as opened:
        yield opened


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    add_pci(tmp_path, "0000:1a:00.0", numa_node="0")
    add_rdma(tmp_path, "mlx5_0", "0000:1a:00.0", {1: "4: ACTIVE"})
    return make_host(tmp_path)


@pytest.fixture
def reports(client: Client, tree: HostTree) -> Iterator[NodeReports]:
    configuration = Configuration()
    with open_node_reports(client, NODE.name, SETTINGS, tree, kubelet=lambda: configuration, retry=RETRY) as opened:
        yield opened


def test_both_objects_are_written_and_owned_by_the_node(client: Client, reports: NodeReports) -> None:
    device = wait_for(lambda: client.find(DEVICES, NODE))
    topology = wait_for(lambda: client.find(TOPOLOGIES, NODE))
    uid = client.get(NODES, NODE)["metadata"]["uid"]
    for written in (device, topology):
        assert [(owner.kind, owner.uid) for owner in written.metadata.owner_references] == [("Node", uid)]
    assert [(info.type, info.id, info.health) for info in device.spec.devices] == [("rdma", "0000:1a:00.0", True)]
    assert [zone.name for zone in topology.zones] == ["node-0", "node-1"]
    assert "2-3" in topology.metadata.annotations[ANNOTATION_CPU_SHARED_POOLS]


def test_nothing_is_written_while_nothing_changes(client: Client, reports: NodeReports) -> None:
    wait_for(lambda: client.find(DEVICES, NODE) and client.find(TOPOLOGIES, NODE))
    assert reports.devices is not None
    assert reports.topology is not None
    for _ in range(3):
        reports.devices.step()
        reports.topology.step()
    assert reports.devices.counters() == {"devices": 1, "writes": 1, "failures": 0}
    assert reports.topology.counters() == {"writes": 1, "failures": 0}


def test_changes_of_node_and_hardware_arrive(client: Client, reports: NodeReports, tmp_path: Path) -> None:
    wait_for(lambda: client.find(DEVICES, NODE))
    reserve = {"metadata": {"annotations": {ANNOTATION_NODE_RESERVATION: '{"reservedCPUs":"2"}'}}}
    client.patch(NODES, NODE, merge_patch(reserve))
    (tmp_path / "sys/devices/pci0000:00/0000:1a:00.0/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    wait_for(lambda: not client.get(DEVICES, NODE).spec.devices[0].health)
    wait_for(lambda: (it := client.find(TOPOLOGIES, NODE)) and ANNOTATION_NODE_RESERVATION in it.metadata.annotations)
    assert reports.cpus.current().node.reserved == {2}
    configuration = reports.configuration()
    assert (configuration.reserved_cpus, configuration.kubelet_static) == ({2}, True)
    condition = client.get(DEVICES, NODE).spec.devices[0].conditions[0]
    assert (condition.status, condition.reason) == ("False", "PortDown")


def test_a_server_that_refuses_is_asked_again(twin: Twin, client: Client, tree: HostTree) -> None:
    refused = Fault(FaultType.ERROR, frozenset({"create"}), status=503)
    twin.faults.add(refused)
    with open_node_reports(client, NODE.name, SETTINGS, tree, retry=RETRY) as reports:
        wait_for(lambda: reports.topology and reports.topology.counters()["failures"])
        twin.faults.clear()
        wait_for(lambda: client.find(TOPOLOGIES, NODE) and client.find(DEVICES, NODE))


def test_nothing_is_written_unasked(client: Client, tree: HostTree) -> None:
    with open_node_reports(client, NODE.name, AgentSettings(), tree) as reports:
        assert (reports.devices, reports.topology) == (None, None)
        assert reports.cpus.current().pools.ls_cpus == {0, 1, 2, 3}
    assert client.find(DEVICES, NODE) is None


def test_a_kubelet_without_an_api_server_tells_of_its_policy(tree: HostTree) -> None:
    configuration = Configuration()
    settings = AgentSettings(root=str(tree.root))
    with open_node_facts(settings, lambda: NO_PODS, lambda: configuration) as facts:
        assert facts.configuration().kubelet_static
        assert facts.configuration().allocatable == {}


def test_an_api_server_that_is_asked_for_and_not_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    settings = AgentSettings(cluster=ClusterSettings(enabled=True))
    with pytest.raises(Unsupported), open_node_facts(settings, lambda: NO_PODS, lambda: None):
        pass


def test_nothing_is_written_before_the_node_is_known(client: Client, tree: HostTree) -> None:
    with open_node_reports(client, NODE.name, SETTINGS, tree, node=lambda: None, retry=RETRY) as reports:
        assert reports.devices is not None
        assert reports.topology is not None
        reports.devices.step()
        reports.topology.step()
    assert client.find(DEVICES, NODE) is None
    assert client.find(TOPOLOGIES, NODE) is None


def test_an_annotation_of_the_node_stops_every_action(tree: HostTree) -> None:
    cpus = CpuStateReader(tree, lambda: NO_PODS)
    told = {"metadata": {"name": "n1", "annotations": {ANNOTATION_STOP: "true"}}}
    for document, reason in (({"metadata": {"name": "n1"}}, ""), (told, f"the node is annotated {ANNOTATION_STOP}")):
        node = msgspec.convert(document, Node)
        assert NodeReports(cpus, lambda node=node: node).stop_reason() == reason  # type: ignore[misc]
    assert NodeReports(cpus, lambda: None).stop_reason() == "", "no object is known yet"
