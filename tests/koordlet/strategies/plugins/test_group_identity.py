from typing import Any

import pytest

from api.intents import Knob
from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.strategies.plugins.group_identity import SYSCTL, GroupIdentity, GroupIdentitySettings
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import BEST_EFFORT, BURSTABLE, ROOT, app, container, node, pod, settings, view

_BLOCK = {"enable": False, "groupIdentity": 2, "schedIdle": 0}
DEFAULTS = {
    "gates": {"GroupIdentity": True},
    "settings": {
        "policies": {"cpuPolicy": "groupIdentity"},
        "lsrClass": {"cpuQOS": _BLOCK},
        "lsClass": {"cpuQOS": _BLOCK},
        "beClass": {"cpuQOS": _BLOCK | {"groupIdentity": -1}},
        "systemClass": {"cpuQOS": _BLOCK | {"groupIdentity": 0}},
    },
}


def of(policy: str = "groupIdentity", **classes: Any) -> GroupIdentity:
    """The strategy with these blocks of cpuQOS, enabled unless they say otherwise."""
    blocks: dict[str, Any] = {name: {"cpuQOS": {"enable": True, **block}} for name, block in classes.items()}
    spec = {GroupIdentity.section: {"policies": {"cpuPolicy": policy}, **blocks}}
    return GroupIdentity(settings_of(GroupIdentitySettings, GroupIdentity.section, spec, "file"))


ALL = {"lsrClass": {}, "lsClass": {}, "beClass": {}}
CPU_QOS = "koordinator.sh/cpuQOS"


@pytest.mark.parametrize(
    ("group", "identity"),
    [
        pytest.param(pod("a", QoSClass.LSE), "2", id="LSE"),
        pytest.param(pod("a", QoSClass.LSR), "2", id="LSR"),
        pytest.param(pod("a", QoSClass.LS), "2", id="LS"),
        pytest.param(pod("a", QoSClass.BE), "-1", id="BE"),
        pytest.param(pod("a", directory=ROOT), "2", id="guaranteed"),
        pytest.param(pod("a", directory=BURSTABLE), "2", id="burstable"),
        pytest.param(pod("a", directory=BEST_EFFORT), "-1", id="best-effort"),
        pytest.param(app("a", QoSClass.LS), "2", id="application"),
        pytest.param(app("a", QoSClass.BE), "-1", id="best-effort-application"),
        pytest.param(
            pod("a", QoSClass.LS, annotations={CPU_QOS: '{"enable": true, "groupIdentity": 1}'}), "1", id="own"
        ),
        pytest.param(pod("a", QoSClass.LS, annotations={CPU_QOS: '{"groupIdentity": 1}'}), None, id="own-not-enabled"),
        pytest.param(
            pod("a", QoSClass.BE, annotations={CPU_QOS: '{"enable": true, "groupIdentity": 1}'}), "-1", id="not-for-BE"
        ),
    ],
)
def test_identities(group: Group, identity: str | None) -> None:
    wanted = settings(of(**ALL).decide(view(group), 0.0))
    assert wanted.get((group.path, Knob.CPU_BVT)) == identity


def test_directories_and_the_switch_of_the_kernel() -> None:
    wanted = settings(of(**ALL).decide(view(), 0.0))
    assert wanted == {
        (SYSCTL, Knob.SYSCTL): "1",
        (BURSTABLE, Knob.CPU_BVT): "2",
        (BEST_EFFORT, Knob.CPU_BVT): "-1",
    }


def test_a_guaranteed_pod_without_a_label_falls_back_on_LS() -> None:  # noqa: N802
    group = pod("a", directory=ROOT)
    assert settings(of(lsClass={"groupIdentity": 1}).decide(view(group), 0.0))[group.path, Knob.CPU_BVT] == "1"


def test_protected_pods_do_not_sink() -> None:
    group = pod("a", QoSClass.LSR)
    wanted = settings(of(lsrClass={"groupIdentity": -1}).decide(view(group), 0.0))
    assert (group.path, Knob.CPU_BVT) not in wanted


@pytest.mark.parametrize(
    ("strategy", "lacking", "idle", "identities"),
    [
        pytest.param(of(**ALL), frozenset(), False, True, id="bvt"),
        pytest.param(of(**ALL), frozenset({Knob.CPU_BVT}), True, False, id="idle-where-bvt-is-lacking"),
        pytest.param(of(beClass={"schedIdle": 1}), frozenset(), True, True, id="both"),
        pytest.param(of("coreSched", **ALL), frozenset(), False, False, id="core-scheduling-excludes-bvt"),
        pytest.param(of("coreSched", **ALL), frozenset({Knob.CPU_BVT}), False, False, id="and-its-stand-in"),
        pytest.param(of("coreSched", beClass={"schedIdle": 1}), frozenset(), True, False, id="idle-as-asked"),
    ],
)
def test_idle(strategy: GroupIdentity, lacking: frozenset[Knob], idle: bool, identities: bool) -> None:
    be = pod("be", QoSClass.BE)
    others = (pod("ls", QoSClass.LS), pod("critical", QoSClass.BE, priority=2_000_000_000))
    wanted = settings(strategy.decide(view(be, container(be), *others, on=node(lacking=lacking)), 0.0))
    assert ((be.path, Knob.CPU_IDLE) in wanted) is idle
    assert all(target == be.path for target, knob in wanted if knob is Knob.CPU_IDLE), "never a directory"
    assert any(knob is Knob.CPU_BVT for _, knob in wanted) is identities


def test_latency_sensitive_work_is_never_idle() -> None:
    with pytest.raises(SettingsError, match=r"lsClass.cpuQOS.schedIdle would starve"):
        of(lsClass={"schedIdle": 1})
