"""Core scheduling groups at the start."""

import pytest

from api.intents import Knob
from api.protocol import LABEL_CORE_SCHED_GROUP_ID, LABEL_CORE_SCHED_POLICY
from koordlet.hooks.resources import NOTHING
from koordlet.hooks.rules.core_sched import CoreSched
from koordlet.identity.pods import PodFacts
from koordlet.strategies.qos_settings import in_each_class
from tests.koordlet.hooks.facts import node, pod, strategies

RULE = CoreSched()
SETTINGS = {**in_each_class({"cpuQOS": {"enable": True}}), "policies": {"cpuPolicy": "coreSched"}}
ON = strategies({"CoreSched": True}, core_sched=SETTINGS)


@pytest.mark.parametrize(
    ("of", "group"),
    [
        pytest.param(pod("BE"), "shared", id="shared"),
        pytest.param(pod("LS"), "shared-expeller", id="expeller"),
        pytest.param(pod("BE", labels={LABEL_CORE_SCHED_GROUP_ID: "g7"}), "g7", id="label"),
        pytest.param(pod("BE", labels={LABEL_CORE_SCHED_POLICY: "exclusive"}), "u1", id="exclusive"),
        pytest.param(pod("BE", labels={LABEL_CORE_SCHED_POLICY: "none"}), "0", id="none"),
        pytest.param(pod("SYSTEM"), None, id="system"),
    ],
)
def test_groups(of: PodFacts, group: str | None) -> None:
    assert RULE.container(of, of.containers[0], node(strategies=ON)).core_sched_group == group


def test_nothing_where_the_kernel_has_no_core_scheduling() -> None:
    of = pod("BE")
    facts = node(strategies=ON, lacking=frozenset({Knob.CORE_SCHED}))
    assert RULE.container(of, of.containers[0], facts) == NOTHING
