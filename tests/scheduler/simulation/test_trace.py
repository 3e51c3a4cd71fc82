"""Trace files: read as written, refused with file, line and column."""

import pytest

from scheduler.simulation.trace import MIB, NodeShape, PodShape, TraceError, read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,1024,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,427061\n"
    "p1,4000,1024,0,0,,BE,Pending,5,,\n"
    "p2,4000,1024,8,1000,,LS,Running,5,9,\n"
)


def test_nodes() -> None:
    assert read_nodes(NODES.splitlines(), "x") == [
        NodeShape("n0", 64000, 262144 * MIB, 2, "P100"),
        NodeShape("n1", 96000, 1024 * MIB),
    ]


def test_pods() -> None:
    first, second, third = read_pods(PODS.splitlines(), "x")
    assert first == PodShape("p0", 6000, 12288 * MIB, 1, 46, ("V100M16", "V100M32"), "LS", 427061.0, 12902960.0)
    assert (second.total_gpu_percent, second.deleted_seconds) == (0, None)
    assert third.total_gpu_percent == 800


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(
            "sn,cpu_milli,memory_mib,gpu,model\nn0,many,1,1,x\n", "nodes.csv:2: column cpu_milli", id="text-for-number"
        ),
        pytest.param("sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,-1,x\n", "nodes.csv:2: column gpu", id="negative"),
        pytest.param("name,cpu\nn0,1\n", "no column sn", id="column-missing"),
    ],
)
def test_malformed_traces_are_named(text: str, named: str) -> None:
    with pytest.raises(TraceError, match=named):
        read_nodes(text.splitlines(), "nodes.csv")
