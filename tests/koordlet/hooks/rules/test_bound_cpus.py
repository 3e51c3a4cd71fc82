"""CPUs of a pod's own: who has them, how many, and claims that are not followed."""

import tracemalloc

import pytest

from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import NOTHING, UNLIMITED
from koordlet.hooks.rule import RuleProblem
from koordlet.hooks.rules.bound_cpus import BoundCpus
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import node, pod, with_cpus

RULE = BoundCpus()


@pytest.mark.parametrize("qos", [QoSClass.LSE, QoSClass.LSR, QoSClass.LS, QoSClass.NONE])
def test_the_scheduler_places_a_pod(qos: QoSClass) -> None:
    of = with_cpus("0-3", qos, request=4000)
    found = RULE.container(of, of.containers[0], node())
    assert found.cpuset_cpus == {0, 1, 2, 3}
    assert found.cpu_quota_us == UNLIMITED
    assert RULE.pod(of, node()).cpu_quota_us == UNLIMITED
    assert RULE.pod(of, node()).cpuset_cpus is None


def test_a_pod_that_is_not_in_the_table_yet_is_placed_too() -> None:
    of = with_cpus("2,4", QoSClass.LSR)
    assert RULE.container(of, of.containers[0], node()).cpuset_cpus == {2, 4}


def test_cpus_that_the_node_lacks_are_left_out() -> None:
    of = with_cpus("6-9", request=4000)
    assert RULE.container(of, of.containers[0], node(cpus=8)).cpuset_cpus == {6, 7}


def test_an_annotation_without_cpus_binds_nothing() -> None:
    of = with_cpus("")
    assert RULE.container(of, of.containers[0], node()) == NOTHING


@pytest.mark.parametrize(
    ("of", "remark"),
    [
        pytest.param(with_cpus("0-7", request=1000), "8 CPUs, but 1000m", id="more-than-requested"),
        pytest.param(with_cpus("0-1", QoSClass.BE, request=2000), "class BE", id="best-effort"),
        pytest.param(with_cpus("0-1", QoSClass.SYSTEM, request=2000), "class SYSTEM", id="system"),
        pytest.param(with_cpus("64-65", request=2000), "none of the CPUs", id="not-here"),
        pytest.param(with_cpus("0-99999999999", request=2000), "CPU", id="huge-range"),
        pytest.param(with_cpus("3-0", request=2000), "3-0", id="descending"),
        pytest.param(with_cpus("zero", request=2000), "zero", id="words"),
        pytest.param(pod("LSR", annotations={ANNOTATION_RESOURCE_STATUS: "{"}), "truncated", id="torn"),
    ],
)
def test_claims_that_cannot_be_followed_are_reported(of: PodFacts, remark: str) -> None:
    tracemalloc.start()
    decided = HookRules().container(of, of.containers[0], node())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decided.resources == NOTHING
    assert remark in decided.problems["default/web/main/bound_cpus"]
    assert peak < 4 << 20


def test_a_pod_that_requests_no_cpu_has_none_of_its_own() -> None:
    claimed = with_cpus("0-1", spec_known=True)
    with pytest.raises(RuleProblem, match="0m are requested"):
        RULE.pod(claimed, node())
