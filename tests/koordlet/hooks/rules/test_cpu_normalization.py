"""Quotas on faster cores."""

import pytest

from koordlet.hooks.resources import NOTHING
from koordlet.hooks.rules.cpu_normalization import CpuNormalization
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import container, node, pod, with_cpus

RULE = CpuNormalization()
FOUR = container(limits={"cpu": 4000})


@pytest.mark.parametrize(
    ("of", "ratio", "quota"),
    [
        pytest.param(pod("LS", FOUR), 1.2, 333_334, id="ls"),
        pytest.param(pod("", FOUR), 1.2, 333_334, id="unlabelled"),
        pytest.param(pod("LS", FOUR), 1.0, None, id="usual-cores"),
        pytest.param(pod("LS", FOUR), 0.5, None, id="slower-cores"),
        pytest.param(pod("LS", FOUR), 50.0, 80_000, id="at-most-five"),
        pytest.param(pod("LS"), 1.2, None, id="no-limit"),
        pytest.param(pod("LSR", FOUR), 1.2, None, id="protected"),
        pytest.param(pod("BE", FOUR), 1.2, None, id="best-effort"),
        pytest.param(with_cpus("0-3", "LS", request=4000), 1.2, None, id="own-cpus"),
        pytest.param(pod("LS", container(limits={"cpu": 1})), 5.0, 1000, id="least"),
    ],
)
def test_limits_mean_the_same_work_everywhere(of: PodFacts, ratio: float, quota: int | None) -> None:
    facts = node(cpu_normalization_ratio=ratio)
    assert RULE.container(of, of.containers[0], facts).cpu_quota_us == quota
    assert RULE.pod(of, facts).cpu_quota_us == quota


def test_a_pod_with_an_unlimited_container_has_no_quota() -> None:
    of = pod("LS", FOUR, container("other"))
    assert RULE.pod(of, node(cpu_normalization_ratio=1.2)) == NOTHING
