from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Intent, Knob, Reclaim
from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.strategies.plugins.watermarks import TAINT, Watermarks
from koordlet.strategies.settings import settings_of
from koordlet.strategies.throttling import Caps, CpuThrottle
from koordlet.strategies.view import NodeView
from koordlet.strategies.watermark_rules import MetricRule, WatermarksSettings, excess, measured
from tests.koordlet.strategies.views import GIB, container, evicted, node, pod, settings, view

DEFAULTS = {
    "gates": {},
    "settings": {
        "intervalSeconds": 10,
        "rules": [],
        "actions": {},
        "throttleClasses": ["BE"],
        "evictClasses": ["BE"],
        "effect": "NoSchedule",
        "podRules": [],
    },
}

BATCH = "kubernetes.io/batch-cpu"
THROTTLE = {"throttle": {"cpuThrottle": {}}}
BE = pod("be", QoSClass.BE, cores=4, limits={BATCH: 4000}, cache_bytes=GIB)


def parsed(action: dict[str, Any], metric: str = "cpu_total_utilization", value: int = 50, **rule: Any) -> Watermarks:
    """One rule with one action, looked at every second."""
    spec = {
        "intervalSeconds": 1,
        "actions": {"act": {"disableSchedule": False, **action}},
        "rules": [{"name": "cpu", "metricRule": {"name": metric, "value": value}, "actionName": "act", **rule}],
    }
    document = {"extensions": {"watermarks": spec}}
    return Watermarks(settings_of(WatermarksSettings, Watermarks.section, document, "file"))


def run(strategy: Watermarks, cores: list[float], *pods: Any) -> list[list[Intent]]:
    """Return the intents in ticks of this node usage."""
    return [strategy.decide(view(*(pods or (BE,)), cores=used), float(tick)) for tick, used in enumerate(cores)]


def test_hits_and_misses_in_a_row_decide() -> None:
    strategy = parsed({"disableSchedule": True, "coolDownSeconds": 0}, avoidanceThreshold=3, restoredThreshold=2)
    levels = [6, 6, 1, 6, 6, 6, 1, 6, 1, 1, 1]
    closed = [bool(intents) for intents in run(strategy, levels)]
    assert closed == [False] * 5 + [True] * 4 + [False] * 2


def test_new_pods_wait_until_it_has_cooled() -> None:
    strategy = parsed({"disableSchedule": True, "coolDownSeconds": 5}, avoidanceThreshold=1, restoredThreshold=1)
    wanted = [settings(intents) for intents in run(strategy, [6, 1, 1, 1, 1, 1, 1])]
    assert wanted[0] == {(TAINT, Knob.NODE_TAINT): "cpu:NoSchedule"}
    assert [bool(one) for one in wanted] == [True] * 5 + [False] * 2


def test_rules_are_looked_at_in_their_interval_and_stand_in_between() -> None:
    strategy = parsed(THROTTLE, avoidanceThreshold=1)
    strategy.settings = WatermarksSettings(
        interval_seconds=10, rules=strategy.settings.rules, actions=strategy.settings.actions
    )
    wanted = [settings(intents)[BE.path, Knob.CPU_MAX] for intents in run(strategy, [6] * 11)]
    assert wanted == ["360000 100000"] * 10 + ["324000 100000"]


def test_throttling_goes_down_and_up_again_by_steps() -> None:
    strategy = parsed(THROTTLE, avoidanceThreshold=1, restoredThreshold=1)
    wanted = [settings(intents).get((BE.path, Knob.CPU_MAX)) for intents in run(strategy, [6, 6, 1, 1, 1, 1])]
    assert wanted == ["360000 100000", "324000 100000", "356400 100000", "392000 100000", None, None]


def test_the_least_ratio_is_a_percent() -> None:
    strategy = parsed({"throttle": {"cpuThrottle": {"minCPURatio": 60, "stepCPURatio": 30}}}, avoidanceThreshold=1)
    wanted = [settings(intents)[BE.path, Knob.CPU_MAX] for intents in run(strategy, [6, 6, 6])]
    assert wanted == ["280000 100000", "240000 100000", "240000 100000"]


def test_only_the_named_classes_are_throttled_and_no_protected_or_leaving_pods() -> None:
    groups = [
        pod("lsr", QoSClass.LSR, cores=2),
        pod("ls", QoSClass.LS, cores=2),
        pod("critical", QoSClass.BE, cores=2, priority=2_000_000_000),
        pod("leaving", QoSClass.BE, cores=2, active=False),
        BE,
    ]
    (intents,) = run(parsed(THROTTLE, avoidanceThreshold=1), [8], *groups)
    assert {target for target, _ in settings(intents)} == {BE.path}


def test_of_two_rules_the_lower_cap_holds() -> None:
    throttles = {"slow": {"stepCPURatio": 10}, "fast": {"stepCPURatio": 50}}
    spec = {
        "intervalSeconds": 1,
        "actions": {
            name: {"disableSchedule": False, "throttle": {"cpuThrottle": steps}} for name, steps in throttles.items()
        },
        "rules": [
            {
                "name": name,
                "metricRule": {"name": "cpu_total_utilization", "value": 50},
                "actionName": name,
                "avoidanceThreshold": 1,
            }
            for name in throttles
        ],
    }
    document = {"extensions": {"watermarks": spec}}
    strategy = Watermarks(settings_of(WatermarksSettings, Watermarks.section, document, "file"))
    (intents,) = run(strategy, [6])
    assert settings(intents) == {(BE.path, Knob.CPU_MAX): "200000 100000"}


def test_no_more_pods_are_throttled_than_needed_and_no_protected_ones() -> None:
    pods = [pod(name, QoSClass.BE, priority=5000 + rank, cores=2) for rank, name in enumerate("abc")]
    others = [pod("ls", QoSClass.LS, cores=2), pod("lsr", QoSClass.LSR, cores=2)]
    # 50 percent of 8 cores are exceeded by 120 and a tenth; a step takes 200 from the first pod.
    strategy = parsed(THROTTLE, "cpu_total_usage", 4000, avoidanceThreshold=1)
    (intents,) = run(strategy, [4.12], *pods, *others)
    assert [target for target, _ in settings(intents)] == [pods[0].path]


@given(st.integers(1, 64_000), st.integers(0, 64_000), st.integers(1, 100), st.integers(1, 100), st.integers(1, 40))
def test_a_cap_is_never_zero_never_rises_on_the_way_down_and_returns(
    limit: int, request: int, least: int, step: int, looks: int
) -> None:
    one = pod("a", QoSClass.LS, cores=1, limits={"cpu": limit}, requests={"cpu": min(request, limit)})
    throttle = CpuThrottle(min_cpu_ratio=least, step_cpu_ratio=step)
    caps = Caps()
    before = limit
    for _ in range(looks):
        caps.lower(one, throttle)
        assert max(limit * least // 100, min(request, limit), 1) <= caps.now[one.path] <= before
        before = caps.now[one.path]
    for _ in range(limit + 1):
        caps.raise_all(throttle)
        if not caps.now:
            return
    raise AssertionError("it never came back")


def test_eviction_until_the_gap_and_a_tenth_are_covered() -> None:
    pods = [pod(name, QoSClass.BE, memory_bytes=size * GIB) for name, size in {"a": 5, "b": 3, "c": 2}.items()]
    action = {"eviction": {"terminationGracePeriodSeconds": 7}}
    strategy = parsed(action, "memory_total_utilization", 80, avoidanceThreshold=2)
    full = view(*pods, memory_bytes=86 * GIB)
    assert strategy.decide(full, 0.0) == []
    second = strategy.decide(full, 1.0)
    assert [path[-1] for path in evicted(second)] == ["a", "b"], "6.6 of 100 GiB"
    begun = dict.fromkeys(evicted(second), 1.0)
    assert evicted(strategy.decide(replace(full, evictions=begun), 2.0)) == [], "they are on their way"


def test_under_pressure_one_pod_goes_at_a_time() -> None:
    pods = [pod(name, QoSClass.BE, cores=2) for name in "ab"]
    strategy = parsed({"eviction": {}}, "memory_pressure", 20, avoidanceThreshold=1)
    seen = view(*pods, memory_pressure_ratio=0.5)
    first = evicted(strategy.decide(seen, 0.0))
    assert len(first) == 1
    assert evicted(strategy.decide(replace(seen, evictions_asked=frozenset(first)), 1.0)) == []


def test_elastic_cpu_given_out_is_released_by_requests() -> None:
    pods = [pod(name, QoSClass.BE, cores=0, requests={BATCH: 3000}) for name in "abc"]
    seen = view(*pods, on=node(8, allocatable={BATCH: 6000}))
    strategy = parsed({"eviction": {}}, "ext_cpu_total_distribute", 120, avoidanceThreshold=1)
    assert len(evicted(strategy.decide(seen, 0.0))) == 1, "150 of 120 percent: 1980 millicores"


def test_page_cache_is_reclaimed() -> None:
    strategy = parsed({"throttle": {"forceGC": True}}, avoidanceThreshold=1)
    (intents,) = run(strategy, [6])
    assert [(intent.target, intent.amount_bytes) for intent in intents if isinstance(intent, Reclaim)] == [
        (BE.path, GIB)
    ]


def test_a_preview_only_tells() -> None:
    strategy = parsed({**THROTTLE, "eviction": {}}, strategy="Preview", avoidanceThreshold=1)
    assert run(strategy, [6, 6]) == [[], []]
    assert "only a preview" in strategy.problems["cpu"]


def test_what_is_not_measured_is_told() -> None:
    strategy = parsed(THROTTLE)
    assert strategy.decide(view(), 0.0) == []
    assert "not measured" in strategy.problems["cpu"]


@pytest.mark.parametrize(
    ("seen", "metric", "value"),
    [
        pytest.param(view(cores=6), "cpu_total_usage", 6000, id="millicores"),
        pytest.param(view(cores=6), "cpu_total_utilization", 75, id="percent"),
        pytest.param(view(memory_bytes=GIB), "memory_total_usage", GIB, id="bytes"),
        pytest.param(view(memory_bytes=GIB), "memory_total_utilization", 1, id="percent-of-memory"),
        pytest.param(view(), "ext_cpu_total_distribute", None, id="no-elastic-cpu"),
        pytest.param(view(load=12.0), "load_per_cpu", 150, id="load"),
        pytest.param(view(memory_pressure_ratio=0.25), "memory_pressure", 25, id="pressure"),
        pytest.param(view(disk_used_ratio=0.9), "disk_utilization", 90, id="disk"),
        pytest.param(view(), "io_pressure", None, id="pressure-unknown"),
    ],
)
def test_measured(seen: NodeView, metric: str, value: int | None) -> None:
    assert measured(seen, metric) == value


def test_excess() -> None:
    rule = MetricRule(name="cpu_total_utilization", value=50)
    assert excess(view(cores=6), rule) == 2200
    assert excess(view(cores=4), rule) == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"value": 101}, "write a percent of capacity", id="above-100"),
        pytest.param({"value": 0.5}, "int", id="fraction"),
        pytest.param({"metric": "load"}, r"metricRule\] name", id="metric"),
        pytest.param({"avoidanceThreshold": 0}, "avoidanceThreshold", id="never-zero"),
        pytest.param({"actionName": "other"}, "names no action", id="action"),
    ],
)
def test_refused_settings(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parsed(THROTTLE, **spec)


def test_the_containers_of_a_throttled_pod_have_no_more_than_it() -> None:
    """Cgroup v1 refuses the quota of a cgroup below which another one has more."""
    wide, narrow = container(BE, "wide", limits={"cpu": 4000}), container(BE, "narrow", limits={"cpu": 100})
    strategy = parsed(THROTTLE, avoidanceThreshold=1, restoredThreshold=1)
    wanted = settings(strategy.decide(view(BE, wide, narrow, container(BE, "free"), cores=6), 0.0))
    quotas = {path: value for (path, knob), value in wanted.items() if knob is Knob.CPU_MAX}
    assert set(quotas) == {BE.path, wide.path}
    assert quotas[BE.path] == quotas[wide.path]


def with_rules(*rules: dict[str, Any]) -> Watermarks:
    """Throttling above half of the node's CPUs, which these rules narrow."""
    spec = {
        "intervalSeconds": 1,
        "actions": {"act": {"disableSchedule": False, **THROTTLE}, "other": {}},
        "rules": [
            {
                "name": "cpu",
                "metricRule": {"name": "cpu_total_utilization", "value": 50},
                "actionName": "act",
                "avoidanceThreshold": 1,
            }
        ],
        "podRules": list(rules),
    }
    return Watermarks(settings_of(WatermarksSettings, Watermarks.section, {"extensions": {"watermarks": spec}}, "f"))


SPARED = {"name": "spare", "labels": {"app": "etl"}, "allowedActions": ["other"]}


@pytest.mark.parametrize(
    ("rules", "hit"),
    [
        pytest.param([], True, id="no-rule"),
        pytest.param([SPARED], False, id="not-among-its-actions"),
        pytest.param([{**SPARED, "allowedActions": []}], False, id="none"),
        pytest.param([{**SPARED, "labels": {"app": "web"}}], True, id="not-selected"),
        pytest.param([SPARED, {"name": "all", "allowedActions": ["act"], "priority": 5}], True, id="priority"),
        pytest.param([{**SPARED, "priority": 9}, {"name": "all", "allowedActions": ["act"]}], False, id="lower"),
        pytest.param([{**SPARED, "namespaces": ["default"]}], False, id="namespace"),
        pytest.param([{**SPARED, "namespaces": ["shop"]}], True, id="other-namespace"),
        pytest.param([{**SPARED, "qosClasses": ["LS"]}], True, id="other-class"),
        pytest.param([{**SPARED, "lowestPriority": 5000, "highestPriority": 5999}], False, id="band"),
        pytest.param([{**SPARED, "lowestPriority": 5600}], True, id="outside-the-band"),
    ],
)
def test_pod_rules_say_which_actions_may_hit_a_pod(rules: list[dict[str, Any]], hit: bool) -> None:
    pods = [replace(BE, labels={"app": "etl"}, priority=5500)]
    assert bool(settings(run(with_rules(*rules), [6], *pods)[0])) is hit


def test_a_pod_rule_names_actions_that_there_are() -> None:
    with pytest.raises(SettingsError, match="names no action"):
        with_rules({**SPARED, "allowedActions": ["nope"]})


def test_pod_rules_widen_nothing() -> None:
    service = pod("ls", QoSClass.LS, cores=6)
    strategy = with_rules({"name": "all", "allowedActions": ["act"]})
    assert not settings(run(strategy, [6], service)[0])
