"""Rights by settings: the response follows its present classes, also where an action is in effect."""

from pathlib import Path

from api.intents import Knob
from api.qos import QoSClass
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop
from koordlet.control.rights import rights_of
from koordlet.enforcer.enforcer import ANSWER
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from tests.koordlet.enforcer.hosts import FakeHost, infos, want

LS = infos(pod=QoSClass.LS)
QUOTA = want(Knob.CPU_MAX, "20000 100000", strategy=ANSWER)


def test_classes_that_are_no_longer_limited_are_let_go_with_the_next_step(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    response = ResponsePolicy(ResponseSettings(limited_classes=(QoSClass.BE, QoSClass.LS)))
    enforcer = host.enforcer()
    enforcer.rights = rights_of(lambda: response.settings.limited_classes, None, believes_kubernetes=True)
    control = ControlLoop(response, enforcer, CapabilityReader(host.tree, Knobs(host.tree), "/agent"))
    enforcer.step([QUOTA], LS, host.later(1))
    assert host.text("/pod", "cpu.max") == "20000 100000"
    control.follow(host.settings(), ResponseSettings())
    enforcer.step([QUOTA], LS, host.later(1))
    assert host.text("/pod", "cpu.max") == "max 100000"
    control.follow(host.settings(), ResponseSettings(limited_classes=(QoSClass.LS,)))
    enforcer.step([QUOTA], LS, host.later(1))
    assert host.text("/pod", "cpu.max") == "20000 100000"
    control.close()


def test_a_strategy_without_a_runner_and_of_no_room_may_limit_nothing() -> None:
    rights = rights_of(lambda: (QoSClass.BE,), None, believes_kubernetes=True)
    assert rights.classes_of("cpu_suppress") == frozenset()
    assert rights.classes_of("runtime_hooks") is None
