from dataclasses import replace
from typing import Any

import pytest

from api.intents import Knob
from api.settings import SettingsError
from koordlet.strategies.plugins.cpu_evict import CpuEvict, CpuEvictSettings, best_effort_values, satisfaction_release
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import NodeView
from tests.koordlet.strategies.views import BEST_EFFORT, directory, evicted, node, pod, view

DEFAULTS = {
    "gates": {"BECPUEvict": False, "CPUAllocatableEvict": False, "CPUEvict": False},
    "settings": {
        "enable": False,
        "evictEnabledPriorityThreshold": None,
        "allocatableEvictPriorityThreshold": None,
        "cpuEvictBESatisfactionUpperPercent": None,
        "cpuEvictBESatisfactionLowerPercent": None,
        "cpuEvictBEUsageThresholdPercent": 90,
        "cpuEvictTimeWindowSeconds": None,
        "cpuEvictPolicy": "evictByRealLimit",
        "cpuEvictThresholdPercent": None,
        "cpuEvictLowerPercent": None,
        "cpuAllocatableEvictThresholdPercent": None,
        "cpuAllocatableEvictLowerPercent": None,
    },
}

OPT_IN = {"koordinator.sh/eviction-enabled": "true"}
BATCH = "kubernetes.io/batch-cpu"
SATISFY = CpuEvictSettings(enable=True, be_lower_percent=50, be_upper_percent=90)


@pytest.mark.parametrize(
    ("usage", "request_", "limit", "release"),
    [
        pytest.param(38_000, 100_000, 40_000, 50_000, id="up-to-the-upper-percent"),
        pytest.param(30_000, 100_000, 40_000, 0, id="not-busy"),
        pytest.param(60_000, 100_000, 60_000, 0, id="satisfied"),
        pytest.param(0, 100_000, 900, 89_100, id="below-one-core-always-busy"),
        pytest.param(500, 100_000, 1000, 0, id="from-one-core-on-busy-or-not"),
        pytest.param(38_000, 100_000, -1, 0, id="limit-unknown"),
        pytest.param(0, 0, 40_000, 0, id="nothing-requested"),
    ],
)
def test_satisfaction(usage: float, request_: float, limit: float, release: int) -> None:
    assert satisfaction_release(usage, request_, limit, SATISFY) == release


def starved(**more: Any) -> NodeView:
    """Best-effort pods that request 8 cores and fill the 2 they have."""
    held = directory(BEST_EFFORT, cpu_millicores=2000, knobs={Knob.CPUSET_CPUS: "0-1", Knob.CPU_MAX: "max 100000"})
    pods = [
        pod("low", "BE", priority=5000, cores=0.5, requests={BATCH: 3000}),
        pod("greedy", "BE", priority=5500, cores=1.0, requests={BATCH: 1000}),
        pod("modest", "BE", priority=5500, cores=0.5, requests={BATCH: 4000}),
        pod("unlabelled", directory=BEST_EFFORT, cores=0.5, requests={BATCH: 4000}),
    ]
    return view(held, *pods, **{"on": node(8), "cores": 4, **more})


def test_the_limit_is_the_smaller_of_cpus_and_quota() -> None:
    assert best_effort_values(starved(), "evictByRealLimit") == (2000, 8000, 2000)
    held = directory(BEST_EFFORT, cpu_millicores=500, knobs={Knob.CPUSET_CPUS: "0-1", Knob.CPU_MAX: "50000 100000"})
    assert best_effort_values(view(held), "evictByRealLimit") == (500, 0, 500)
    assert best_effort_values(starved(on=node(8, allocatable={BATCH: 0})), "evictByAllocatable") == (2000, 8000, 1)
    assert best_effort_values(starved(), "evictByAllocatable") == (2000, 8000, -1)
    assert best_effort_values(view(), "evictByRealLimit") is None


def run(config: CpuEvictSettings, seen: NodeView, gate: str, ticks: int = 25) -> list[tuple[int, list[str]]]:
    """Evictions by second, of a strategy with one gate open."""
    strategy = CpuEvict(config, {gate: True})
    found = [(second, evicted(strategy.decide(seen, float(second)))) for second in range(ticks)]
    return [(second, [path.rpartition("/pod")[2] for path in paths]) for second, paths in found if paths]


def test_the_starved_are_ended_after_the_start_has_cooled() -> None:
    # 8000 * 90 % - 2000 = 5200 millicores: low gives 3000, greedy 1000, modest 4000.
    assert run(SATISFY, starved(), "BECPUEvict") == [(20, ["low", "greedy", "modest"])]


def test_the_gate_and_the_switch_are_off_by_default() -> None:
    assert run(SATISFY, starved(), "CPUEvict") == []
    assert run(replaced(SATISFY, enable=False), starved(), "BECPUEvict") == []


def replaced(config: CpuEvictSettings, **more: Any) -> CpuEvictSettings:
    return CpuEvictSettings(**{**{name: getattr(config, name) for name in config.__struct_fields__}, **more})


def test_a_window_must_be_a_third_full_and_on_average_bad() -> None:
    config = replaced(SATISFY, window_seconds=90)
    assert run(config, starved(), "BECPUEvict", 40) == [(29, ["low", "greedy", "modest"])]
    strategy = CpuEvict(config, {"BECPUEvict": True})
    calm = view(directory(BEST_EFFORT, cpu_millicores=100), *starved().pods, on=node(8), cores=4)
    for second in range(80):
        strategy.decide(calm, float(second))
    assert evicted(strategy.decide(starved(), 80.0)) == [], "one bad moment in 81"


def test_what_is_not_measured_ends_nobody() -> None:
    seen = view(*starved().pods, cores=4)
    assert run(SATISFY, seen, "BECPUEvict") == []
    assert run(CpuEvictSettings(enable=True), starved(), "BECPUEvict") == []


def test_promises_must_be_short_in_several_ticks() -> None:
    config = replaced(SATISFY, policy="evictByAllocatable")
    strategy = CpuEvict(config, {"BECPUEvict": True})
    rich, poor = (starved(on=node(8, allocatable={BATCH: amount})) for amount in (20_000, 2000))
    for second in range(25):
        assert evicted(strategy.decide(rich, float(second))) == []
    assert [bool(strategy.decide(poor, float(second))) for second in (25, 26, 27)] == [False, False, True]


def test_usage_evicts_those_that_opted_in() -> None:
    config = CpuEvictSettings(
        enable=True, threshold_percent=80, lower_percent=50, evict_enabled_priority_threshold=5999
    )
    pods = [
        pod("in", "LS", priority=5000, cores=1, labels=OPT_IN),
        pod("next", "LS", priority=5001, cores=5, labels=OPT_IN),
        pod("unmeasured", "LS", priority=4000, labels=OPT_IN),
        pod("high", "LS", priority=9000, cores=2, labels=OPT_IN),
    ]
    # 87 % of 8 cores; down to 50 % are 2960 millicores.
    assert run(config, view(*pods, on=node(8), cores=7), "CPUEvict") == [(20, ["in", "next"])]
    assert run(config, view(*pods, on=node(8), cores=6.4), "CPUEvict") == [(20, ["in", "next"])], "at the threshold"
    assert run(config, view(*pods, on=node(8), cores=6.3), "CPUEvict") == []


def test_the_ledger_evicts_when_it_stays_over() -> None:
    config = CpuEvictSettings(enable=True, allocatable_threshold_percent=110, allocatable_evict_priority_threshold=5500)
    pods = [
        pod("in", "BE", priority=5500, labels=OPT_IN, requests={BATCH: 1000}),
        pod("out", "BE", priority=5500, requests={BATCH: 4000}),
        pod("prod", "LS", priority=9000, labels=OPT_IN, requests={"cpu": 9000}),
    ]
    seen = view(*pods, on=node(8, allocatable={BATCH: 4200, "cpu": 8000}), cores=1)
    assert run(config, seen, "CPUAllocatableEvict") == [(20, ["in"])]
    assert run(config, replace(seen, node=node(8)), "CPUAllocatableEvict") == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"cpuEvictBESatisfactionLowerPercent": 50}, "set or drop both", id="one-of-two"),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 61, "cpuEvictBESatisfactionUpperPercent": 90}, "1..60", id="lower"
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 0, "cpuEvictBESatisfactionUpperPercent": 90}, "1..60", id="zero"
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 40}, "upper", id="order"
        ),
        pytest.param({"cpuEvictThresholdPercent": 0}, "cpuEvictThresholdPercent", id="always"),
        pytest.param(
            {"cpuEvictThresholdPercent": 70, "cpuEvictLowerPercent": 80}, "cpuEvictLowerPercent 80", id="stop"
        ),
        pytest.param({"allocatableEvictPriorityThreshold": 9000}, "7999", id="prod-is-not-evicted-by-ledger"),
    ],
)
def test_refused_settings(table: dict[str, int], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings_of(CpuEvictSettings, CpuEvict.section, {CpuEvict.section: table}, "file")
