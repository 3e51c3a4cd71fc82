import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.plugins.core_sched import (
    CoreBlock,
    CoreClass,
    CorePolicies,
    CoreSched,
    CoreSchedSettings,
    core_group,
)
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import container, pod, settings, view

_BLOCK = {"enable": False, "coreExpeller": True}
DEFAULTS = {
    "gates": {"CoreSched": False},
    "settings": {
        "policies": {"cpuPolicy": "groupIdentity"},
        "lsrClass": {"cpuQOS": _BLOCK},
        "lsClass": {"cpuQOS": _BLOCK},
        "beClass": {"cpuQOS": _BLOCK | {"coreExpeller": False}},
        "systemClass": {"cpuQOS": _BLOCK | {"coreExpeller": False}},
    },
}

POLICY, GROUP = "koordinator.sh/core-sched-policy", "koordinator.sh/core-sched-group-id"
ON = CoreSchedSettings(
    policies=CorePolicies(cpu_policy="coreSched"),
    lsr_class=CoreClass(cpu_qos=CoreBlock(enable=True, core_expeller=True)),
    be_class=CoreClass(cpu_qos=CoreBlock(enable=True)),
    system_class=CoreClass(cpu_qos=CoreBlock(enable=True)),
)


@pytest.mark.parametrize(
    ("of", "group"),
    [
        pytest.param(pod("a", QoSClass.BE), "shared", id="shared"),
        pytest.param(pod("a", QoSClass.BE, labels={GROUP: "g"}), "g", id="named"),
        pytest.param(pod("a", QoSClass.BE, labels={GROUP: "g", POLICY: "exclusive"}), "a", id="alone"),
        pytest.param(pod("a", QoSClass.BE, labels={POLICY: "none"}), "0", id="none"),
        pytest.param(pod("a", QoSClass.BE, labels={POLICY: "new"}), "shared", id="unknown-policy"),
        pytest.param(pod("a", QoSClass.LSR, labels={GROUP: "g"}), "g-expeller", id="expels"),
        pytest.param(pod("a", QoSClass.LS), "", id="class-is-off"),
        pytest.param(pod("a", QoSClass.SYSTEM), "", id="system"),
    ],
)
def test_group(of: Group, group: str) -> None:
    assert core_group(of, ON) == group


def test_containers_of_a_pod_share_a_group() -> None:
    be = pod("be", QoSClass.BE)
    seen = view(be, container(be), container(be, "side"), container(be, "done", active=False))
    wanted = settings(CoreSched(ON, {"CoreSched": True}).decide(seen, 0.0))
    assert wanted == {(f"{be.path}/{name}", Knob.CORE_SCHED): "shared" for name in ("main", "side")}
    assert CoreSched(ON).decide(seen, 0.0) == []
    assert CoreSched(features={"CoreSched": True}).decide(seen, 0.0) == []
