"""The reclaimed pool of best-effort pods."""

import pytest

from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import NOTHING
from koordlet.hooks.rules.reclaimed_pool import ReclaimedPool
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import node, pod, with_cpus

RULE = ReclaimedPool()
BOUND = (with_cpus("0-1", request=2000), with_cpus("2-3", QoSClass.LSE, request=2000))


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(pod("BE"), {0, 1, 4, 5, 6, 7}, id="be"),
        pytest.param(pod(kube_qos="BestEffort"), {0, 1, 4, 5, 6, 7}, id="unlabelled"),
        pytest.param(pod("LS", kube_qos="BestEffort"), None, id="ls-without-requests"),
        pytest.param(pod("LS"), None, id="ls"),
        pytest.param(pod(kube_qos="BestEffort", priority=2_000_001_000), None, id="critical"),
    ],
)
def test_best_effort_pods_may_use_what_lse_pods_leave(of: PodFacts, expected: set[int] | None) -> None:
    assert RULE.container(of, of.containers[0], node(pods=BOUND)).cpuset_cpus == expected


def test_the_gate_is_closed() -> None:
    of = pod("BE")
    assert HookRules().container(of, of.containers[0], node(pods=BOUND)).resources == NOTHING
    opened = HookRules({"BECPUManager": True}).container(of, of.containers[0], node(pods=BOUND))
    assert opened.resources.cpuset_cpus == {0, 1, 4, 5, 6, 7}


def test_the_kubelets_static_policy_is_left_alone() -> None:
    of = pod("BE")
    assert RULE.container(of, of.containers[0], node(pods=BOUND, kubelet_static=True)) == NOTHING
