"""Pods that get CPUs of their own, by class, band, annotation and default together."""

import json
from typing import Any

import msgspec
import pytest

from api.kube.objects import Pod
from api.protocol import ANNOTATION_NUMA_TOPOLOGY_SPEC, ANNOTATION_RESOURCE_SPEC, LABEL_QOS_CLASS
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.numa.hints import NumaPolicy
from scheduler.numa.placement import NumaExclusive
from scheduler.numa.request import CpuRequest, read_request
from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy

FULL, SPREAD, NONE = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS, CpuBindPolicy.NONE


def request(
    qos: str = "LSR",
    layout: dict[str, str] | None = None,
    *,
    priority: int = 9500,
    default: CpuBindPolicy = FULL,
    **requests: str,
) -> CpuRequest | None:
    notes: dict[str, Any] = {ANNOTATION_RESOURCE_SPEC: json.dumps(layout)} if layout else {}
    containers = [{"name": "c", "resources": {"requests": requests or {"cpu": "2"}}}]
    metadata = {"name": "p", "uid": "p", "labels": {LABEL_QOS_CLASS: qos}, "annotations": notes}
    pod = msgspec.convert({"metadata": metadata, "spec": {"priority": priority, "containers": containers}}, Pod)
    return read_request(PodClasses().info(pod), default)


@pytest.mark.parametrize(
    ("qos", "layout", "priority", "default", "bind", "required"),
    [
        pytest.param("LSE", None, 9500, FULL, FULL, NONE, id="lse"),
        pytest.param("LSR", None, 9500, SPREAD, SPREAD, NONE, id="lsr"),
        pytest.param("LSR", None, 9500, NONE, NONE, NONE, id="lsr-no-default"),
        pytest.param("LS", None, 9500, FULL, NONE, NONE, id="ls"),
        pytest.param("LSR", None, 5500, FULL, NONE, NONE, id="lsr-low-priority"),
        pytest.param("LSR", {"preferredCPUBindPolicy": "SpreadByPCPUs"}, 9500, FULL, SPREAD, NONE, id="preferred"),
        pytest.param("LSR", {"requiredCPUBindPolicy": "SpreadByPCPUs"}, 9500, FULL, SPREAD, SPREAD, id="required"),
        pytest.param(
            "LSR",
            {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUBindPolicy": "SpreadByPCPUs"},
            9500,
            NONE,
            FULL,
            FULL,
            id="required-over-preferred",
        ),
        pytest.param("LSR", {"requiredCPUBindPolicy": "Default"}, 9500, SPREAD, SPREAD, SPREAD, id="required-default"),
        pytest.param(
            "LSR", {"preferredCPUBindPolicy": "ConstrainedBurst"}, 9500, FULL, NONE, NONE, id="preferred-unknown-here"
        ),
        pytest.param("LSR", {"preferredCPUBindPolicy": "nonsense"}, 9500, FULL, FULL, NONE, id="preferred-nonsense"),
    ],
)
def test_layout(
    qos: str,
    layout: dict[str, str] | None,
    priority: int,
    default: CpuBindPolicy,
    bind: CpuBindPolicy,
    required: CpuBindPolicy,
) -> None:
    read = request(qos, layout, priority=priority, default=default)
    assert read is not None
    assert (read.bind, read.required) == (bind, required)


def test_exclusive_and_numa_wishes_hold_for_any_class() -> None:
    notes = {
        ANNOTATION_RESOURCE_SPEC: '{"preferredCPUExclusivePolicy":"PCPULevel"}',
        ANNOTATION_NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"Restricted","singleNUMANodeExclusive":"Preferred"}',
    }
    containers = [{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]
    pod = msgspec.convert({"metadata": {"uid": "p", "annotations": notes}, "spec": {"containers": containers}}, Pod)
    read = read_request(PodClasses().info(pod), FULL)
    assert read is not None
    assert read.exclusive is CpuExclusivePolicy.PCPU_LEVEL
    assert read.policy is NumaPolicy.RESTRICTED
    assert read.numa_exclusive is NumaExclusive.PREFERRED


def test_whole_cpus() -> None:
    even, odd = request(cpu="2"), request(cpu="1500m")
    assert even is not None
    assert odd is not None
    assert (even.whole, odd.whole) == (True, False)


def test_nothing_asked_is_no_wish() -> None:
    assert request(cpu="0") is None
