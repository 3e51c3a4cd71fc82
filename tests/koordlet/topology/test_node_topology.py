"""The NodeResourceTopology object: content, what is written over, and what the scheduler makes of it."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from api.crds import NODE_RESOURCE_TOPOLOGY
from api.kube.numa import (
    ANNOTATION_BE_CPU_SHARED_POOLS,
    ANNOTATION_CPU_SHARED_POOLS,
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_KUBELET_CPU_MANAGER,
    ANNOTATION_POD_CPU_ALLOCS,
    NodeResourceTopology,
)
from api.kube.objects import Node
from api.protocol import (
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_RESOURCE_STATUS,
    LABEL_NODE_ENABLE_NUMA_RESERVATION,
)
from api.qos import QoSClass
from koordlet.host.topology import NumaMemory
from koordlet.identity.pods import NO_PODS, PodFacts, PodTable
from koordlet.topology.cpu_state import CpuState, Machine
from koordlet.topology.kubelet_cpus import NO_KUBELET, KubeletCpus
from koordlet.topology.node_cpus import node_cpus
from koordlet.topology.node_topology import merged, node_topology_object, zones
from koordlet.topology.share_pools import share_pools
from scheduler.numa.reports import machine_shape, node_bind_policy
from scheduler.numa.topology import CpuBindPolicy
from tests.koordlet.topology.machines import machine

GIB = 1 << 30
MACHINE = Machine(
    cpus=machine(sockets=2, nodes=1, cores=2, threads=2),
    memory={0: NumaMemory(8 * GIB, {}), 1: NumaMemory(8 * GIB, {2 << 20: GIB})},
)
STATIC = KubeletCpus(
    policy="static",
    options={"full-pcpus-only": "true"},
    reserved=frozenset({0, 1}),
    exclusive={"g": frozenset({2, 3})},
    alignment="RestrictedPodLevel",
)


def a_node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    document = {
        "metadata": {"name": "n", "uid": "u", "labels": labels or {}, "annotations": annotations or {}},
        "status": {"capacity": {"cpu": "8", "memory": "16Gi"}, "allocatable": {"cpu": "7500m", "memory": "14Gi"}},
    }
    return msgspec.convert(document, Node)


def pod(name: str, qos: QoSClass, status: dict[str, Any], **requests: int) -> PodFacts:
    annotations = {ANNOTATION_RESOURCE_STATUS: json.dumps(status)}
    return PodFacts(f"default/{name}", qos, annotations=annotations, requests=requests, uid=name)


def state(kubelet: KubeletCpus = NO_KUBELET, *pods: PodFacts, node: Node | None = None) -> CpuState:
    cpus = node_cpus(node.metadata.annotations if node else {}, MACHINE.cpus)
    table = PodTable(pods) if pods else NO_PODS
    pools = share_pools(MACHINE.cpus, kubelet, pods, cpus)
    return CpuState(machine=MACHINE, kubelet=kubelet, node=cpus, pods=table, pools=pools)


def document_of(report: NodeResourceTopology) -> dict[str, Any]:
    kind = {"apiVersion": NODE_RESOURCE_TOPOLOGY.api_version, "kind": NODE_RESOURCE_TOPOLOGY.kind}
    document: dict[str, Any] = json.loads(msgspec.json.encode(report))
    return kind | document


def test_annotations_in_koordinators_shape() -> None:
    report = node_topology_object(state(STATIC), a_node())
    texts = {key: json.loads(text) for key, text in report.metadata.annotations.items()}
    assert texts[ANNOTATION_CPU_TOPOLOGY]["detail"][0] == {"id": 0, "core": 0, "socket": 0, "node": 0}
    pools = [{"socket": 0, "node": 0, "cpuset": "0-1"}, {"socket": 1, "node": 1, "cpuset": "4-7"}]
    assert texts[ANNOTATION_CPU_SHARED_POOLS] == texts[ANNOTATION_BE_CPU_SHARED_POOLS] == pools
    assert texts[ANNOTATION_KUBELET_CPU_MANAGER] == {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "0-1",
    }
    assert texts[ANNOTATION_POD_CPU_ALLOCS] == [{"uid": "g", "cpuset": "2-3", "managedByKubelet": True}]
    assert report.topology_policies == ["RestrictedPodLevel"]
    assert (report.metadata.owner_references[0].name, report.metadata.owner_references[0].uid) == ("n", "u")


def amounts(found: CpuState, part: dict[str, int] | None = None) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {
        zone.name: {each.name: (each.capacity, each.allocatable, each.available) for each in zone.resources}
        for zone in zones(found, part or {})
    }


def test_zones_of_an_idle_machine() -> None:
    assert amounts(state()) == {
        "node-0": {"cpu": ("4",) * 3, "memory": (str(8 * GIB),) * 3},
        "node-1": {"cpu": ("4",) * 3, "memory": (str(7 * GIB),) * 3, "hugepages-2Mi": (str(GIB),) * 3},
    }


def test_available_is_what_no_pod_holds() -> None:
    on_node_1 = [{"node": 1, "resources": {"cpu": "2500m", "memory": "1Gi"}}]
    busy = state(
        STATIC,
        pod("a", QoSClass.LS, {"numaNodeResources": on_node_1}, cpu=2500, memory=GIB),
        pod("b", QoSClass.LSR, {"cpuset": "0"}, cpu=1000),
        pod("liar", QoSClass.LS, {"numaNodeResources": on_node_1}, cpu=100, memory=GIB),
    )
    assert amounts(busy)["node-0"]["cpu"] == ("4", "4", "1")
    assert amounts(busy)["node-1"]["cpu"] == ("4", "4", "1500m")
    assert amounts(busy)["node-1"]["memory"] == (str(7 * GIB), str(7 * GIB), str(6 * GIB))


def test_the_kubelets_part_is_spread_where_the_node_asks_for_it() -> None:
    plain = node_topology_object(state(), a_node())
    asked = node_topology_object(state(), a_node({LABEL_NODE_ENABLE_NUMA_RESERVATION: "true"}))
    assert plain.zones[0].resources[0].allocatable == "4"
    assert asked.zones[0].resources[0].allocatable == "3750m"
    assert asked.zones[0].resources[1].allocatable == str(7 * GIB)
    assert asked.metadata.labels[LABEL_NODE_ENABLE_NUMA_RESERVATION] == "true"


def test_nothing_is_written_while_nothing_changes() -> None:
    report = node_topology_object(state(STATIC), a_node())
    assert merged(document_of(report), report) is None


def test_what_others_wrote_stays() -> None:
    document = document_of(node_topology_object(state(STATIC), a_node()))
    document["metadata"]["annotations"] |= {"note": "x", ANNOTATION_NODE_RESERVATION: "old"}
    document["zones"][0]["resources"].append({"name": "example.com/nic", "capacity": "1"})
    document["zones"][0]["costs"] = [{"name": "node-0", "value": 10}]
    document["attributes"] = [{"name": "a", "value": "b"}]
    changed = merged(document, node_topology_object(state(), a_node()))
    assert changed is not None
    assert changed["metadata"]["annotations"]["note"] == "x"
    assert ANNOTATION_NODE_RESERVATION not in changed["metadata"]["annotations"]
    assert [each["name"] for each in changed["zones"][0]["resources"]] == ["cpu", "memory", "example.com/nic"]
    assert changed["zones"][0]["costs"] == [{"name": "node-0", "value": 10}]
    assert changed["attributes"] == [{"name": "a", "value": "b"}]
    assert changed["topologyPolicies"] == ["None"]


def test_an_annotation_of_the_node_that_cannot_be_read_does_not_travel() -> None:
    good, bad = (a_node(annotations={ANNOTATION_NODE_RESERVATION: text}) for text in ('{"reservedCPUs":"0"}', "{"))
    assert ANNOTATION_NODE_RESERVATION in node_topology_object(state(node=good), good).metadata.annotations
    assert ANNOTATION_NODE_RESERVATION not in node_topology_object(state(node=bad), bad).metadata.annotations


def test_the_object_follows_the_schema_of_the_resource() -> None:
    path = Path("deploy/crds/noderesourcetopologies.topology.node.k8s.io.yaml")
    root = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    document = document_of(node_topology_object(state(STATIC), a_node()))
    jsonschema.validate(document, root)
    # What the resource's original schema requires.
    assert document["topologyPolicies"]
    for zone in document["zones"]:
        assert zone["type"]
        assert all({"name", "capacity", "allocatable", "available"} <= each.keys() for each in zone["resources"])


def test_the_scheduler_reads_it() -> None:
    node = a_node(annotations={ANNOTATION_NODE_RESERVATION: '{"reservedCPUs":"6"}'})
    written = document_of(node_topology_object(state(STATIC, node=node), node))
    report = msgspec.convert(written, NodeResourceTopology)
    shape = machine_shape(node, report)
    assert sorted(shape.topology.cpus) == list(range(8))
    assert {cpu: (info.socket, info.node) for cpu, info in shape.topology.cpus.items()}[5] == (1, 1)
    assert shape.withheld == {0, 1, 2, 3, 6}
    assert shape.numa == {0: {"cpu": 4000, "memory": 8 * GIB}, 1: {"cpu": 4000, "memory": 7 * GIB}}
    assert node_bind_policy(node, report) is CpuBindPolicy.FULL_PCPUS


@pytest.mark.parametrize("kubelet", [NO_KUBELET, KubeletCpus(policy="none")], ids=["none", "policy-none"])
def test_the_scheduler_may_give_every_cpu_where_the_kubelet_gives_none(kubelet: KubeletCpus) -> None:
    shape = machine_shape(a_node(), node_topology_object(state(kubelet), a_node()))
    assert shape.withheld == frozenset()
