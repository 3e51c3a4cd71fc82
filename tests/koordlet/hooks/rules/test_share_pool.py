"""The share pool: who is placed there, and when it is left alone."""

import json

import pytest

from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rules.share_pool import SharePool
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import node, pod, with_cpus

RULE = SharePool()
LSR = with_cpus("0-1", request=2000)
LSE = with_cpus("2-3", QoSClass.LSE, request=2000)


def on_numa(number: int) -> dict[str, str]:
    given = {"numaNodeResources": [{"node": number, "resources": {"cpu": "500m"}}]}
    return {ANNOTATION_RESOURCE_STATUS: json.dumps(given)}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(pod("LS"), {4, 5, 6, 7}, id="ls"),
        pytest.param(pod(), {4, 5, 6, 7}, id="unlabelled"),
        pytest.param(pod("LS", annotations=on_numa(1)), {4, 5, 6, 7}, id="numa-node"),
        pytest.param(pod("LS", annotations=on_numa(0)), None, id="numa-node-that-is-full"),
        pytest.param(pod("LS", annotations={ANNOTATION_RESOURCE_STATUS: "{"}), {4, 5, 6, 7}, id="unreadable-claim"),
        pytest.param(with_cpus("0-7", "LS", request=1000), {4, 5, 6, 7}, id="claim-above-request"),
        pytest.param(pod("BE"), None, id="best-effort"),
        pytest.param(pod(kube_qos="BestEffort"), None, id="unlabelled-best-effort"),
        pytest.param(pod("SYSTEM"), None, id="system"),
        pytest.param(pod("LSR"), None, id="protected-without-cpus"),
        pytest.param(pod(priority=2_000_001_000), None, id="critical"),
        pytest.param(LSR, None, id="own-cpus"),
    ],
)
def test_pods_share_what_is_bound_to_nobody(of: PodFacts, expected: set[int] | None) -> None:
    facts = node(pods=(LSR, LSE), numa_nodes=2)
    assert RULE.container(of, of.containers[0], facts).cpuset_cpus == expected


def test_a_pool_of_all_cpus_sets_nothing() -> None:
    of = pod("LS")
    assert RULE.container(of, of.containers[0], node()) == NOTHING


def test_a_claim_above_its_request_takes_no_cpu_from_others() -> None:
    of = pod("LS")
    greedy = with_cpus("0-7", request=1000)
    assert RULE.container(of, of.containers[0], node(pods=(greedy,))) == NOTHING


def test_where_everything_is_bound_nothing_is_set() -> None:
    of = pod("LS")
    assert RULE.container(of, of.containers[0], node(pods=(with_cpus("0-7", request=8000),))) == NOTHING


def test_cpu_sets_are_the_kubelets_under_its_static_policy() -> None:
    of = pod("LS")
    assert RULE.container(of, of.containers[0], node(pods=(LSR,), kubelet_static=True)) == NOTHING


def test_system_pods_run_on_the_systems_cpus() -> None:
    of = pod("SYSTEM")
    facts = node(system_cpus=frozenset({0, 1}))
    assert RULE.container(of, of.containers[0], facts) == ContainerResources(cpuset_cpus=frozenset({0, 1}))
