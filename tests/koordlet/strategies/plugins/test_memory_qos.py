from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.plugins.memory_qos import (
    MemoryBlock,
    MemoryClass,
    MemoryQos,
    MemoryQosSettings,
    high_bytes,
    protection_bytes,
)
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import BEST_EFFORT, BURSTABLE, GIB, ROOT, container, node, pod, settings, view

_BLOCK = {
    "enable": False,
    "policy": "default",
    "minLimitPercent": 0,
    "lowLimitPercent": 0,
    "throttlingPercent": 0,
    "wmarkRatio": 95,
    "wmarkScalePermill": 20,
    "wmarkMinAdj": -25,
    "priorityEnable": 0,
    "priority": 0,
    "oomKillGroup": 0,
}
DEFAULTS = {
    "gates": {"CgroupReconcile": False},
    "settings": {
        "lsrClass": {"memoryQOS": _BLOCK},
        "lsClass": {"memoryQOS": _BLOCK},
        "beClass": {"memoryQOS": _BLOCK | {"wmarkMinAdj": 50}},
        "systemClass": {"memoryQOS": _BLOCK | {"wmarkRatio": 0, "wmarkScalePermill": 50, "wmarkMinAdj": 0}},
    },
}

MIB = 2**20
GATE = {"CgroupReconcile": True}


def group(request: int | None, limit: int | None = None, qos: str = "LS") -> Group:
    name = "kubernetes.io/batch-memory" if qos == "BE" else "memory"
    amounts = [{} if amount is None else {name: amount} for amount in (request, limit)]
    return pod("a", qos, requests=amounts[0], limits=amounts[1])


@pytest.mark.parametrize(
    ("of", "throttling", "high"),
    [
        pytest.param(group(512 * MIB, 1024 * MIB), 80, 966365184, id="part-of-the-way-in-whole-pages"),
        pytest.param(group(512 * MIB, 1024 * MIB), 0, None, id="none"),
        pytest.param(group(1 * GIB), 50, 45 * GIB + GIB // 2, id="no-limit-counts-as-allocatable"),
        pytest.param(group(0, 4096), 80, 4096, id="never-zero"),
        pytest.param(group(512 * MIB, 1024 * MIB, "BE"), 100, 1024 * MIB, id="batch-memory"),
    ],
)
def test_high(of: Group, throttling: int, high: int | None) -> None:
    machine = node(allocatable={"memory": 90 * GIB})
    assert high_bytes(of, MemoryBlock(throttling_percent=throttling), machine) == high


@pytest.mark.parametrize(
    ("least", "low", "protection"),
    [
        pytest.param(50, 0, (500, 0), id="low-unset"),
        pytest.param(50, 40, (500, 500), id="low-is-raised-to-min"),
        pytest.param(0, 100, (0, 1000), id="low-alone"),
    ],
)
def test_protection(least: int, low: int, protection: tuple[int, int]) -> None:
    block = MemoryBlock(min_limit_percent=least, low_limit_percent=low)
    assert protection_bytes(group(1000), block) == protection


@given(st.integers(0, 2**40), st.integers(1, 2**40), st.integers(1, 100), st.integers(0, 100))
def test_high_is_between_request_and_limit(request: int, more: int, throttling: int, least: int) -> None:
    of = group(request, request + more)
    high = high_bytes(of, MemoryBlock(throttling_percent=throttling), node())
    assert high is not None
    assert 0 < high <= max(request + more, 4096)
    assert high % 4096 == 0


def with_class(block: MemoryBlock, **more: Any) -> MemoryQos:
    return MemoryQos(MemoryQosSettings(ls_class=MemoryClass(memory_qos=block), **more), GATE)


WEB = pod("web", QoSClass.LS, requests={"memory": 1000 * MIB}, limits={"memory": 2000 * MIB})
MAIN = container(WEB)
FULL = MemoryBlock(enable=True, min_limit_percent=10, throttling_percent=50, wmark_ratio=95, priority_enable=1)


def test_a_pod_its_containers_and_its_directories() -> None:
    wanted = settings(with_class(FULL).decide(view(WEB, MAIN), 0.0))
    share = str(100 * MIB)
    assert {target for (target, knob), value in wanted.items() if (knob, value) == (Knob.MEMORY_MIN, share)} == {
        WEB.path,
        MAIN.path,
        BURSTABLE,
        ROOT,
    }
    assert wanted[MAIN.path, Knob.MEMORY_HIGH] == str(1500 * MIB)
    assert (WEB.path, Knob.MEMORY_HIGH) not in wanted
    assert wanted[MAIN.path, Knob.MEMORY_WMARK_RATIO] == "95"
    assert wanted[MAIN.path, Knob.MEMORY_WMARK_SCALE_FACTOR] == "50"
    assert wanted[MAIN.path, Knob.MEMORY_USE_PRIORITY_OOM] == wanted[BURSTABLE, Knob.MEMORY_USE_PRIORITY_OOM] == "1"
    assert not any(target == BEST_EFFORT for target, _ in wanted)


@pytest.mark.parametrize(("switch", "value"), [(0, None), (1, "1")])
def test_a_group_may_end_as_a_whole(switch: int, value: str | None) -> None:
    wanted = settings(with_class(MemoryBlock(enable=True, oom_kill_group=switch)).decide(view(WEB, MAIN), 0.0))
    assert wanted.get((MAIN.path, Knob.MEMORY_OOM_GROUP)) == value


def test_protected_pods_are_only_protected() -> None:
    core = pod("core", QoSClass.LSR, requests={"memory": 1000}, limits={"memory": 10**9})
    strategy = MemoryQos(MemoryQosSettings(lsr_class=MemoryClass(memory_qos=FULL)), GATE)
    wanted = settings(strategy.decide(view(core, container(core)), 0.0))
    assert wanted[core.path, Knob.MEMORY_MIN] == "100"
    assert not any(knob is Knob.MEMORY_HIGH for _, knob in wanted)
    assert "throttlingPercent" in strategy.problems[f"{core.path}/main"]


@pytest.mark.parametrize(
    ("annotation", "enabled", "least", "ratio"),
    [
        pytest.param(None, True, "100", "95", id="as-its-class"),
        pytest.param(None, False, None, None, id="class-is-off"),
        pytest.param('{"policy": "none"}', True, None, None, id="none"),
        pytest.param('{"policy": "auto"}', False, None, "95", id="recommended"),
        pytest.param('{"policy": "auto", "minLimitPercent": 20}', False, "200", "95", id="recommended-and-own"),
        pytest.param('{"minLimitPercent": 20}', True, "200", "95", id="own-on-its-class"),
        pytest.param('{"minLimitPercent": 20}', False, "200", None, id="own-alone"),
        pytest.param('{"minLimitPercent": 0.2}', True, "100", "95", id="unusable"),
    ],
)
def test_annotations(annotation: str | None, enabled: bool, least: str | None, ratio: str | None) -> None:
    annotations = {} if annotation is None else {"koordinator.sh/memoryQOS": annotation}
    web = pod("web", QoSClass.LS, requests={"memory": 1000}, annotations=annotations)
    block = MemoryBlock(enable=enabled, min_limit_percent=10, wmark_ratio=95)
    wanted = settings(with_class(block).decide(view(web, container(web, annotations={})), 0.0))
    assert wanted.get((f"{web.path}/main", Knob.MEMORY_MIN)) == least
    assert wanted.get((f"{web.path}/main", Knob.MEMORY_WMARK_RATIO)) == ratio


def test_the_gate_is_closed_by_default() -> None:
    strategy = MemoryQos(MemoryQosSettings(ls_class=MemoryClass(memory_qos=FULL)))
    assert strategy.decide(view(WEB, MAIN), 0.0) == []
