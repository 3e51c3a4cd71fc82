"""Scheduling identity at the start."""

import pytest

from api.intents import Knob
from api.protocol import ANNOTATION_CPU_QOS
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rules.group_identity import GroupIdentity
from koordlet.identity.pods import PodFacts
from koordlet.strategies.qos_settings import in_each_class
from koordlet.strategies.view import KubeQoS
from tests.koordlet.hooks.facts import node, pod, strategies

RULE = GroupIdentity()
ON = strategies(group_identity=in_each_class({"cpuQOS": {"enable": True}}))


@pytest.mark.parametrize(
    ("of", "bvt"),
    [
        pytest.param(pod("LSE"), 2, id="lse"),
        pytest.param(pod("LSR"), 2, id="lsr"),
        pytest.param(pod("LS"), 2, id="ls"),
        pytest.param(pod("BE"), -1, id="be"),
        pytest.param(pod("SYSTEM"), None, id="system"),
        pytest.param(pod(kube_qos="Guaranteed"), 2, id="guaranteed"),
        pytest.param(pod(kube_qos="Burstable"), 2, id="burstable"),
        pytest.param(pod(kube_qos="BestEffort"), -1, id="best-effort"),
        pytest.param(
            pod("LS", annotations={ANNOTATION_CPU_QOS: '{"enable": true, "groupIdentity": 1}'}), 1, id="annotation"
        ),
    ],
)
def test_a_pod_starts_with_the_identity_of_its_class(of: PodFacts, bvt: int | None) -> None:
    assert RULE.pod(of, node(strategies=ON)).bvt == bvt


def test_best_effort_pods_start_idle_where_the_kernel_has_no_bvt() -> None:
    facts = node(strategies=ON, lacking=frozenset({Knob.CPU_BVT}))
    assert RULE.pod(pod("BE"), facts) == ContainerResources(idle=True)
    assert RULE.pod(pod("LS"), facts) == NOTHING


@pytest.mark.parametrize(("kube_qos", "bvt"), [("Guaranteed", None), ("Burstable", 2), ("BestEffort", -1)])
def test_directories(kube_qos: str, bvt: int | None) -> None:
    assert HookRules().directory(KubeQoS(kube_qos), node(strategies=ON)).resources.bvt == bvt


def test_nothing_by_default_and_without_strategies() -> None:
    assert RULE.pod(pod("BE"), node(strategies=strategies())) == NOTHING
    assert RULE.pod(pod("BE"), node()) == NOTHING


def test_an_identity_out_of_range_is_reported() -> None:
    of = pod("LS", annotations={ANNOTATION_CPU_QOS: '{"groupIdentity": 9}'})
    decided = HookRules().pod(of, node(strategies=ON))
    assert "cpuQOS" in decided.problems["default/web/group_identity"]
