"""Batch and mid resources: Koordinator's numbers, absent limits, init containers, both sources of amounts."""

import json

import pytest

from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC, BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import NOTHING, UNLIMITED, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.hooks.rules.batch_resource import BatchResource
from koordlet.identity.pods import ContainerRole, PodContainer
from tests.koordlet.hooks.facts import GIB, container, node, pod, strategies

RULE: Rule = BatchResource()


def amounts(name: str, cpu: int, limit: int | None = None, **more: object) -> PodContainer:
    limits = {} if limit is None else {BATCH_CPU: limit}
    return PodContainer(name, requests={BATCH_CPU: cpu}, limits=limits, **more)  # type: ignore[arg-type]


TWO = (amounts("a", 1000, 1000), amounts("b", 500, 500))


@pytest.mark.parametrize(
    ("containers", "facts", "shares", "quota"),
    [
        pytest.param(TWO, node(), 1536, 150_000, id="sums"),
        pytest.param(TWO, node(cpu_normalization_ratio=1.5), 1536, 100_000, id="faster-cores"),
        pytest.param((TWO[0], amounts("b", 500)), node(), 1536, UNLIMITED, id="one-without-limit"),
        pytest.param((amounts("a", 500, 2000),), node(), 512, 200_000, id="limit-above-request"),
        pytest.param((amounts("a", 0, 5),), node(), 2, 1000, id="least"),
        pytest.param((amounts("a", 0, 0),), node(), 2, 1000, id="zero-is-the-least"),
        pytest.param((amounts("a", 10**9, 10**9),), node(), 262_144, 10**11, id="most-shares"),
        pytest.param(
            (*TWO, PodContainer("debug", role=ContainerRole.EPHEMERAL)), node(), 1536, 150_000, id="ephemeral"
        ),
        pytest.param((*TWO, amounts("i", 4000, 4000, role=ContainerRole.INIT)), node(), 5632, 550_000, id="late-init"),
        pytest.param((amounts("i", 4000, 4000, role=ContainerRole.INIT), *TWO), node(), 4096, 400_000, id="init"),
        pytest.param(
            TWO,
            node(strategies=strategies(cpu_suppress={"enable": True, "cpuSuppressPolicy": "cfsQuota"})),
            1536,
            UNLIMITED,
            id="under-one-quota",
        ),
    ],
)
def test_pods_have_the_sum_of_their_containers(containers: tuple[PodContainer, ...], facts, shares, quota) -> None:  # type: ignore[no-untyped-def]
    found = RULE.pod(pod(QoSClass.BE, *containers), facts)
    assert (found.cpu_shares, found.cpu_quota_us) == (shares, quota)


def test_a_container_has_its_own_amounts() -> None:
    of = pod(QoSClass.BE, *TWO)
    assert RULE.container(of, TWO[1], node()) == ContainerResources(
        cpu_shares=512, cpu_quota_us=50_000, memory_limit_bytes=UNLIMITED
    )


def test_memory_is_limited_by_the_limit_alone() -> None:
    asks = container(requests={BATCH_MEMORY: GIB}, limits={BATCH_MEMORY: 2 * GIB})
    assert RULE.container(pod(QoSClass.BE, asks), asks, node()).memory_limit_bytes == 2 * GIB
    asks = container(requests={BATCH_MEMORY: GIB})
    assert RULE.container(pod(QoSClass.BE, asks), asks, node()).memory_limit_bytes == UNLIMITED


def test_amounts_stand_in_the_annotation_where_the_spec_is_not_seen() -> None:
    spec = {"containers": {"main": {"requests": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"}, "limits": {BATCH_CPU: "1k"}}}}
    of = pod(QoSClass.BE, annotations={ANNOTATION_EXTENDED_RESOURCE_SPEC: json.dumps(spec)})
    found = RULE.container(of, of.containers[0], node())
    assert found == ContainerResources(cpu_shares=512, cpu_quota_us=100_000, memory_limit_bytes=UNLIMITED)


@pytest.mark.parametrize("qos", [QoSClass.NONE, QoSClass.LS, QoSClass.LSR, QoSClass.LSE, QoSClass.SYSTEM])
def test_batch_counts_for_pods_labelled_be(qos: QoSClass) -> None:
    assert RULE.pod(pod(qos, *TWO), node()) == NOTHING


def test_mid_counts_for_pods_that_are_not_protected() -> None:
    asks = container(requests={MID_CPU: 2000, MID_MEMORY: GIB}, limits={MID_CPU: 3000, MID_MEMORY: GIB})
    expected = ContainerResources(cpu_shares=2048, cpu_quota_us=300_000, memory_limit_bytes=GIB)
    assert RULE.container(pod(QoSClass.LS, asks), asks, node()) == expected
    assert RULE.container(pod(QoSClass.LSR, asks), asks, node()) == NOTHING
    assert RULE.container(pod(QoSClass.LS, asks, priority=2_000_001_000), asks, node()) == NOTHING


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="torn"),
        pytest.param("[" * 50_000, id="deep"),
        pytest.param('{"containers": 5}', id="wrong-type"),
        pytest.param('{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1e999999"}}}}', id="huge-exponent"),
        pytest.param('{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"-5"}}}}', id="negative"),
        pytest.param('{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"NaN"}}}}', id="nan"),
        pytest.param(" " * 100_000 + "{}", id="long"),
    ],
)
def test_an_unreadable_annotation_costs_this_rule_only(text: str) -> None:
    of = pod(QoSClass.BE, annotations={ANNOTATION_EXTENDED_RESOURCE_SPEC: text})
    decided = HookRules().container(of, of.containers[0], node())
    assert decided.resources == NOTHING
    assert list(decided.problems) == ["default/web/main/batch_resource"]
    assert ANNOTATION_EXTENDED_RESOURCE_SPEC in decided.problems["default/web/main/batch_resource"]


def test_an_annotation_lifts_no_limit_of_a_spec() -> None:
    """Anyone who may create a pod may write it; the spec's extended resources are counted by the scheduler."""
    huge = {"containers": {"main": {"requests": {MID_CPU: "256000"}}}}
    annotations = {ANNOTATION_EXTENDED_RESOURCE_SPEC: json.dumps(huge)}
    native = container(requests={"cpu": 100}, limits={"cpu": 100, "memory": 64 << 20})
    for known in (True, False):
        of = pod(QoSClass.NONE, native, annotations=annotations, spec_known=known, kube_qos="Guaranteed")
        assert RULE.container(of, native, node()) == RULE.pod(of, node()) == NOTHING
    listed = pod(QoSClass.NONE, annotations=annotations, spec_known=True, kube_qos="BestEffort")
    assert RULE.pod(listed, node()) == NOTHING


def test_amounts_of_the_nodes_own_are_left_to_the_kubelet() -> None:
    mixed = container(requests={MID_CPU: 2000, "cpu": 100}, limits={MID_CPU: 3000, "cpu": 100})
    assert RULE.pod(pod(QoSClass.LS, mixed), node()) == NOTHING
