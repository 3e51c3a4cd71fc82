"""Resource groups at the start."""

import pytest

from api.protocol import ANNOTATION_RESCTRL
from koordlet.hooks.rules.resctrl import Resctrl
from koordlet.identity.pods import PodFacts
from koordlet.strategies.qos_settings import in_each_class
from koordlet.strategies.view import CacheControl
from tests.koordlet.hooks.facts import node, pod, strategies

RULE = Resctrl()
ON = strategies({"Resctrl": True}, resctrl_qos=in_each_class({"resctrlQOS": {"enable": True}}))
OWN = '{"llc": {"schemata": {"percent": 60}}}'


@pytest.mark.parametrize(
    ("of", "group"),
    [
        pytest.param(pod("BE"), "BE", id="be"),
        pytest.param(pod("LS"), "LS", id="ls"),
        pytest.param(pod("LSR"), None, id="protected"),
        pytest.param(pod("LS", annotations={ANNOTATION_RESCTRL: OWN}), "koordlet-u1", id="own"),
    ],
)
def test_groups(of: PodFacts, group: str | None) -> None:
    facts = node(strategies=ON, cache=CacheControl(0x7FF))
    assert RULE.container(of, of.containers[0], facts).resctrl_group == group


def test_nothing_where_the_hardware_has_no_resctrl() -> None:
    of = pod("BE")
    assert RULE.container(of, of.containers[0], node(strategies=ON)).resctrl_group is None
