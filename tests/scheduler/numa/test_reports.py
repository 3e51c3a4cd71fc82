"""Reports and annotations: what a machine looks like, what is withheld, and the status round trip."""

import json
from typing import Any

import msgspec
import pytest

from api.cpuset import format_cpuset
from api.kube.numa import NodeResourceTopology
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY
from scheduler.numa.machine import CpuHold
from scheduler.numa.reports import decode_status, encode_status, machine_shape, node_bind_policy
from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy

NONE = CpuExclusivePolicy.NONE


def node(annotations: dict[str, Any] | None = None, **labels: str) -> Node:
    texts = {key: json.dumps(value) for key, value in (annotations or {}).items()}
    named = {f"node.koordinator.sh/{key.replace('_', '-')}": value for key, value in labels.items()}
    return msgspec.convert({"metadata": {"name": "n", "annotations": texts, "labels": named}}, Node)


def report(**annotations: Any) -> NodeResourceTopology:
    detail = [{"id": cpu, "core": cpu % 2, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
    notes = {"node.koordinator.sh/cpu-topology": {"detail": detail}} | annotations
    zone = {"resources": [{"name": "cpu", "allocatable": "4"}, {"name": "memory", "allocatable": "1Gi"}]}
    return msgspec.convert(
        {
            "metadata": {"name": "n", "annotations": {key: json.dumps(value) for key, value in notes.items()}},
            "zones": [{"name": "node-0", **zone}, {"name": "node-1", **zone}, {"name": "other", **zone}],
        },
        NodeResourceTopology,
    )


def test_cores_counted_per_socket_are_told_apart() -> None:
    topology = machine_shape(node(), report()).topology
    assert topology.threads_per_core == 2
    assert len({cpu.core for cpu in topology.cpus.values()}) == 4
    assert topology.numa_nodes == (0, 1)


def test_zones_become_numa_amounts() -> None:
    assert machine_shape(node(), report()).numa == {0: {CPU: 4000, MEMORY: 1 << 30}, 1: {CPU: 4000, MEMORY: 1 << 30}}


def test_everything_not_for_pods_is_withheld() -> None:
    shape = machine_shape(
        node(
            {
                "node.koordinator.sh/reservation": {"reservedCPUs": "0"},
                "node.koordinator.sh/system-qos-resource": {"cpuset": "1"},
            }
        ),
        report(
            **{
                "kubelet.koordinator.sh/cpu-manager-policy": {"policy": "static", "reservedCPUs": "2"},
                "node.koordinator.sh/pod-cpu-allocs": [
                    {"cpuset": "3", "managedByKubelet": True},
                    {"cpuset": "4", "managedByKubelet": False},
                ],
            }
        ),
    )
    assert format_cpuset(shape.withheld) == "0-3"


def test_shared_system_cpus_stay() -> None:
    system = {"node.koordinator.sh/system-qos-resource": {"cpuset": "1", "cpusetExclusive": False}}
    assert not machine_shape(node(system), report()).withheld


@pytest.mark.parametrize(
    ("reservation", "left"),
    [
        pytest.param({"reservedCPUs": "0-1"}, {0: 2000, 1: 4000}, id="cpus"),
        pytest.param({"resources": {"cpu": "2"}}, {0: 3000, 1: 3000}, id="amount"),
    ],
)
def test_labelled_reservation_comes_off_the_numa_nodes(reservation: dict[str, Any], left: dict[int, int]) -> None:
    held = node({"node.koordinator.sh/reservation": reservation}, enable_numa_reservation="true")
    assert {place: amounts[CPU] for place, amounts in machine_shape(held, report()).numa.items()} == left


@pytest.mark.parametrize(
    ("label", "kubelet", "policy"),
    [
        pytest.param("", None, CpuBindPolicy.NONE, id="nothing"),
        pytest.param("None", None, CpuBindPolicy.NONE, id="label-none"),
        pytest.param("FullPCPUsOnly", None, CpuBindPolicy.FULL_PCPUS, id="label-full"),
        pytest.param("SpreadByPCPUs", None, CpuBindPolicy.SPREAD_BY_PCPUS, id="label-spread"),
        pytest.param(
            "",
            {"policy": "static", "options": {"full-pcpus-only": "true"}},
            CpuBindPolicy.FULL_PCPUS,
            id="kubelet-static",
        ),
        pytest.param(
            "", {"policy": "none", "options": {"full-pcpus-only": "true"}}, CpuBindPolicy.NONE, id="kubelet-none"
        ),
    ],
)
def test_bind_policy_of_a_node(label: str, kubelet: dict[str, Any] | None, policy: CpuBindPolicy) -> None:
    notes = {"kubelet.koordinator.sh/cpu-manager-policy": kubelet} if kubelet else {}
    labels = {"cpu_bind_policy": label} if label else {}
    assert node_bind_policy(node(**labels), report(**notes)) is policy


def test_amplification_is_read_and_never_below_one() -> None:
    key = "node.koordinator.sh/resource-amplification-ratio"
    assert machine_shape(node({key: {"cpu": 1.5}}), None).amplification == 1.5
    assert machine_shape(node({key: {"cpu": 0.5}}), None).amplification == 1.0


def test_status_survives_the_round_trip() -> None:
    text = encode_status(frozenset({0, 1, 5}), {0: {CPU: 2000}, 1: {CPU: 1500, MEMORY: 7}})
    assert json.loads(text)["cpuset"] == "0-1,5"
    expected = CpuHold(frozenset({0, 1, 5}), NONE, {0: {CPU: 2000}, 1: {CPU: 1500, MEMORY: 7}}, "r")
    assert decode_status(text, NONE, "r") == expected


@pytest.mark.parametrize(
    "text", ["", "{", '{"cpuset":"x"}', '{"numaNodeResources":[{"node":0,"resources":{"cpu":"?"}}]}']
)
def test_unreadable_status_is_nothing(text: str) -> None:
    assert decode_status(text, NONE, "") is None
