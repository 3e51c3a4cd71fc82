"""CPUs that a node's annotations keep back."""

import pytest

from api.protocol import (
    ANNOTATION_NODE_CPU_NORMALIZATION_RATIO,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NODE_SYSTEM_QOS_RESOURCE,
)
from koordlet.topology.node_cpus import PLAIN_NODE, NodeCpus, node_cpus
from tests.koordlet.topology.machines import machine

EIGHT = machine(sockets=2, nodes=1, cores=2, threads=2)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, PLAIN_NODE, id="none"),
        pytest.param(
            {ANNOTATION_NODE_RESERVATION: '{"resources":{"cpu":"4"},"reservedCPUs":"6-9"}'},
            NodeCpus(reserved=frozenset({6, 7}), reserved_amounts={"cpu": 4000}),
            id="named-cpus-before-the-amount",
        ),
        pytest.param(
            {ANNOTATION_NODE_RESERVATION: '{"resources":{"cpu":"1500m","memory":"4Gi"}}'},
            NodeCpus(reserved=frozenset({0, 1}), reserved_amounts={"cpu": 1500, "memory": 4 << 30}),
            id="amount",
        ),
        pytest.param(
            {ANNOTATION_NODE_RESERVATION: '{"reservedCPUs":"6-7","applyPolicy":"ReservedCPUsOnly"}'},
            NodeCpus(reserved=frozenset({6, 7})),
            id="cpus-only",
        ),
        pytest.param(
            {ANNOTATION_NODE_SYSTEM_QOS_RESOURCE: '{"cpuset":"0-1"}'},
            NodeCpus(system=frozenset({0, 1})),
            id="system-is-exclusive-by-default",
        ),
        pytest.param(
            {ANNOTATION_NODE_SYSTEM_QOS_RESOURCE: '{"cpuset":"0-1","cpusetExclusive":false}'},
            NodeCpus(system=frozenset({0, 1}), system_exclusive=False),
            id="shared-system",
        ),
        pytest.param(
            {ANNOTATION_NODE_CPU_NORMALIZATION_RATIO: "1.20"}, NodeCpus(normalization_ratio=1.2), id="normalization"
        ),
    ],
)
def test_annotations(annotations: dict[str, str], expected: NodeCpus) -> None:
    assert node_cpus(annotations, EIGHT) == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(ANNOTATION_NODE_RESERVATION, "{", id="torn"),
        pytest.param(ANNOTATION_NODE_RESERVATION, '{"resources":{"cpu":"much"}}', id="quantity"),
        pytest.param(ANNOTATION_NODE_RESERVATION, '{"reservedCPUs":"0-99999999999"}', id="bomb"),
        pytest.param(ANNOTATION_NODE_SYSTEM_QOS_RESOURCE, '{"cpuset":"x"}', id="cpus"),
        pytest.param(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO, "nan", id="nan"),
        pytest.param(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO, "0.5", id="slower"),
        pytest.param(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO, "", id="empty-is-absent"),
    ],
)
def test_what_cannot_be_read_counts_as_absent(key: str, text: str) -> None:
    found = node_cpus({key: text}, EIGHT)
    assert found.withheld == frozenset()
    assert found.normalization_ratio == 1.0
    assert found.unreadable == ((key,) if text else ())
