from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Intent, Knob, Setting
from api.qos import QoSClass
from koordlet.strategies.cpuquota import parse_quota
from koordlet.strategies.plugins.cpu_burst import (
    Bucket,
    CpuBurst,
    CpuBurstSettings,
    QuotaStep,
    SharePool,
    adjusted,
    next_quota_us,
    pool_state,
    share_pool_ratio,
    static_burst_us,
    step_of,
)
from koordlet.strategies.view import Group, NodeView
from tests.koordlet.strategies.views import container, node, pod, settings, view

DEFAULTS = {
    "gates": {"CPUBurst": True},
    "settings": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
}

LIMIT = {"cpu": 2000}
POD = pod("web", QoSClass.LS, limits=LIMIT, cores=1)
AUTO = CpuBurstSettings(policy="auto")


def seen(quota: str = "200000 100000", throttled: float | None = 0.3, cores: float = 1.0, **more: Any) -> NodeView:
    """An eight-CPU node with one web pod of one container."""
    main = container(POD, knobs={Knob.CPU_MAX: quota}, throttled_ratio=throttled, limits=LIMIT)
    return view(replace(POD, **more), main, cores=cores)


MAIN = f"{POD.path}/main"


def test_static_burst() -> None:
    assert static_burst_us(2000, 1000) == 2_000_000


@pytest.mark.parametrize(
    ("ratio", "state"),
    [
        pytest.param(0.50, SharePool.OVERLOAD, id="at-the-threshold"),
        pytest.param(0.45, SharePool.COOLING, id="at-nine-tenths"),
        pytest.param(0.44, SharePool.IDLE, id="below"),
        pytest.param(None, SharePool.UNKNOWN, id="unknown"),
    ],
)
def test_pool_state(ratio: float | None, state: SharePool) -> None:
    assert pool_state(ratio, 50) is state


def test_share_pool_leaves_own_cpus_and_best_effort_out() -> None:
    groups = (pod("lsr", QoSClass.LSR, cores=1, requests={"cpu": 2000}), pod("be", QoSClass.BE, cores=2), POD)
    assert share_pool_ratio(view(*groups, on=node(8), cores=6)) == pytest.approx(3 / 6)
    assert share_pool_ratio(view(pod("lsr", QoSClass.LSR, requests={"cpu": 8000}), on=node(8), cores=1)) == 1.0
    assert share_pool_ratio(view(POD)) is None


@pytest.mark.parametrize(
    ("allowed", "throttled", "pool", "step"),
    [
        pytest.param(True, 0.3, SharePool.IDLE, QuotaStep.UP, id="throttled-and-room"),
        pytest.param(True, 0.0, SharePool.IDLE, QuotaStep.REMAIN, id="not-throttled"),
        pytest.param(True, None, SharePool.IDLE, QuotaStep.REMAIN, id="not-measured"),
        pytest.param(False, 0.3, SharePool.IDLE, QuotaStep.DOWN, id="used-up"),
        pytest.param(True, 0.3, SharePool.COOLING, QuotaStep.REMAIN, id="cooling"),
        pytest.param(True, 0.3, SharePool.UNKNOWN, QuotaStep.REMAIN, id="unknown"),
        pytest.param(False, 0.3, SharePool.COOLING, QuotaStep.DOWN, id="used-up-while-cooling"),
        pytest.param(True, 0.3, SharePool.OVERLOAD, QuotaStep.DOWN, id="overload"),
        pytest.param(True, 0.0, SharePool.OVERLOAD, QuotaStep.DOWN, id="overload-takes-from-the-idle-too"),
    ],
)
def test_step(allowed: bool, throttled: float | None, pool: SharePool, step: QuotaStep) -> None:
    assert adjusted(step_of(allowed, throttled), pool) is step


@pytest.mark.parametrize(
    ("current", "percent", "step", "quota"),
    [
        pytest.param(300_000, 300, QuotaStep.UP, 360_000, id="up"),
        pytest.param(300_000, 300, QuotaStep.DOWN, 240_000, id="down"),
        pytest.param(590_000, 300, QuotaStep.UP, 600_000, id="ceiling"),
        pytest.param(210_000, 300, QuotaStep.DOWN, 200_000, id="base"),
        pytest.param(900_000, 300, QuotaStep.REMAIN, 600_000, id="clamped-from-above"),
        pytest.param(300_000, 100, QuotaStep.UP, 200_000, id="no-burst"),
    ],
)
def test_next_quota(current: int, percent: int, step: QuotaStep, quota: int) -> None:
    assert next_quota_us(current, 200_000, percent, step) == quota


def test_the_bucket() -> None:
    config = CpuBurstSettings(policy="auto", cfs_quota_burst_period_seconds=60)
    bucket = Bucket.of("/a", config, 100.0)
    assert bucket.capacity == 12_000
    assert 0 <= bucket.tokens < 6_000
    bucket.tokens = 1_000.0
    assert bucket.allows(150, 110.0)
    assert bucket.tokens == 500
    assert not bucket.allows(150, 120.0)
    bucket.allows(80, 1000.0)
    assert bucket.tokens == 0, "between 60 and 100 percent nothing changes"
    bucket.allows(0, 1e6)
    assert bucket.tokens == 12_000
    bucket.allows(1000, 2e6)
    assert bucket.tokens == -12_000


def test_the_bucket_loses_no_part_of_a_second() -> None:
    config = CpuBurstSettings(policy="auto", cfs_quota_burst_period_seconds=60)
    bucket = Bucket.of("/a", config, 0.0)
    bucket.tokens = 1_000.0
    for tenth in range(1, 101):
        bucket.allows(150, tenth / 10)
    assert bucket.tokens == 500


@pytest.mark.parametrize(("period", "grows"), [(-1, True), (0, False), (60, True)])
def test_a_period_of_zero_is_none_at_all(period: int, grows: bool) -> None:
    config = CpuBurstSettings(policy="cfsQuotaBurstOnly", cfs_quota_burst_period_seconds=period)
    wanted = settings(CpuBurst(config).decide(seen(), 0.0))
    assert (wanted.get((MAIN, Knob.CPU_MAX)) == "240000 100000") is grows


def test_other_settings_mean_another_bucket() -> None:
    config = CpuBurstSettings(policy="cfsQuotaBurstOnly", cfs_quota_burst_period_seconds=1)
    strategy = CpuBurst(config)
    hot = replace(seen(), groups=tuple(replace(group, cpu_millicores=9000.0) for group in seen().groups))
    calm = replace(seen(), groups=tuple(replace(group, cpu_millicores=100.0) for group in seen().groups))
    for second in range(300):
        strategy.decide(calm, float(second))
    for second in range(300, 303):
        strategy.decide(hot, float(second))
    assert not settings(strategy.decide(hot, 303.0)), "used up"
    strategy.settings = CpuBurstSettings(policy="cfsQuotaBurstOnly", cfs_quota_burst_period_seconds=600)
    assert settings(strategy.decide(hot, 303.0)), "a new bucket"


def test_a_container_that_uses_more_than_half_of_its_limit_in_the_mean_gets_no_burst() -> None:
    def using(millicores: float, quota: str = "200000 100000") -> NodeView:
        now = seen(quota)
        return replace(now, groups=tuple(replace(group, cpu_millicores=millicores) for group in now.groups))

    assert settings(CpuBurst(AUTO).decide(using(1000.0), 0.0)), "half of it"
    strategy = CpuBurst(AUTO)
    assert settings(strategy.decide(using(1001.0), 0.0)) == {}
    wanted = settings(strategy.decide(using(1001.0, "300000 100000"), 1.0))
    assert wanted[MAIN, Knob.CPU_MAX] == "240000 100000", "what grew before goes back step by step"
    for second in range(2, 60):
        strategy.decide(using(500.0), float(second))
    assert (MAIN, Knob.CPU_BURST) in settings(strategy.decide(using(1900.0), 60.0)), "one burst is no mean"


def test_a_throttled_container_gets_more_quota_and_its_pod_with_it() -> None:
    wanted = settings(CpuBurst(AUTO).decide(seen("300000 100000"), 0.0))
    assert wanted[MAIN, Knob.CPU_MAX] == "360000 100000"
    assert wanted[POD.path, Knob.CPU_MAX] == "360000 100000"
    assert wanted[MAIN, Knob.CPU_BURST] == "200000"
    assert wanted[POD.path, Knob.CPU_BURST] == "200000"


def test_at_the_base_no_quota_is_wanted() -> None:
    wanted = settings(CpuBurst(AUTO).decide(seen(throttled=0.0), 0.0))
    assert {knob for _, knob in wanted} == {Knob.CPU_BURST}


def test_a_container_without_a_quota_is_given_none() -> None:
    wanted = settings(CpuBurst(AUTO).decide(seen("max 100000"), 0.0))
    assert {knob for _, knob in wanted} == {Knob.CPU_BURST}


def test_one_busy_moment_is_averaged() -> None:
    strategy = CpuBurst(CpuBurstSettings(policy="cfsQuotaBurstOnly"))
    for second in range(4):
        strategy.decide(seen(cores=1.0), float(second))
    assert MAIN in {target for target, _ in settings(strategy.decide(seen(cores=7.0), 4.0))}, "2.2 of 8 CPUs on average"
    for second in range(5, 9):
        wanted = settings(strategy.decide(seen(cores=7.0), float(second)))
    assert not wanted, "overload: back to the base"


@pytest.mark.parametrize(
    ("more", "knobs"),
    [
        pytest.param({"annotations": {"koordinator.sh/cpuBurst": '{"policy": "none"}'}}, set(), id="pod-says-no"),
        pytest.param(
            {"annotations": {"koordinator.sh/cpuBurst": '{"policy": "cpuBurstOnly", "cpuBurstPercent": 50}'}},
            {(POD.path, Knob.CPU_BURST, "100000"), (MAIN, Knob.CPU_BURST, "100000")},
            id="pod-says-how",
        ),
        pytest.param({"qos": QoSClass.LSR}, set(), id="own-cpus"),
        pytest.param({"qos": QoSClass.BE}, set(), id="best-effort"),
        pytest.param({"active": False}, set(), id="on-its-way-out"),
    ],
)
def test_pods(more: dict[str, Any], knobs: set[tuple[str, Knob, str]]) -> None:
    wanted = settings(CpuBurst(AUTO).decide(seen(**more), 0.0))
    assert {(*key, value) for key, value in wanted.items()} == knobs


def test_an_annotation_that_cannot_be_read_is_told_and_ignored() -> None:
    strategy = CpuBurst(CpuBurstSettings(policy="cpuBurstOnly"))
    wanted = strategy.decide(seen(annotations={"koordinator.sh/cpuBurst": '{"cpuBurstPercent": 0.5}'}), 0.0)
    assert len(wanted) == 2
    assert "whole number" in strategy.problems[POD.path]


def test_no_limit_no_burst() -> None:
    free = pod("free", QoSClass.LS)
    assert CpuBurst(AUTO).decide(view(free, container(free, throttled_ratio=0.0), cores=1), 0.0) == []


def test_no_quota_grows_beyond_the_node() -> None:
    limits = {"cpu": 7000}
    main = container(POD, knobs={Knob.CPU_MAX: "790000 100000"}, throttled_ratio=0.1, limits=limits)
    wanted = settings(CpuBurst(CpuBurstSettings(policy="cfsQuotaBurstOnly")).decide(view(POD, main, cores=1), 0.0))
    assert wanted[MAIN, Knob.CPU_MAX] == "800000 100000"
    huge = replace(main, limits={"cpu": 20_000}, knobs={Knob.CPU_MAX: "2000000 100000"})
    assert CpuBurst(CpuBurstSettings(policy="cfsQuotaBurstOnly")).decide(view(POD, huge, cores=1), 0.0) == []


def test_on_faster_cores_the_base_is_smaller() -> None:
    main = container(
        POD, knobs={Knob.CPU_MAX: "166667 100000"}, throttled_ratio=0.1, limits=LIMIT, cpu_millicores=800.0
    )
    faster = view(POD, main, on=node(8, cpu_normalization_ratio=1.2), cores=1)
    wanted = settings(CpuBurst(CpuBurstSettings(policy="cfsQuotaBurstOnly")).decide(faster, 0.0))
    assert wanted[MAIN, Knob.CPU_MAX] == "200000 100000"


class Kernel:
    """Quota and burst of each cgroup; like mainline, it refuses a burst above the quota, whichever is written."""

    def __init__(self, groups: list[Group]) -> None:
        self.quota = {group.path: quota_of(group) for group in groups}
        self.burst = dict.fromkeys(self.quota, 0)

    def write(self, intents: list[Intent]) -> None:
        for intent in intents:
            assert isinstance(intent, Setting)
            if intent.knob is Knob.CPU_MAX:
                self.quota[intent.target] = parse_quota(intent.value) or 10**9
            else:
                self.burst[intent.target] = int(intent.value)
            assert self.burst[intent.target] <= self.quota[intent.target], "the kernel refuses"


def quota_of(group: Group) -> int:
    return group.limits["cpu"] * 100


@given(
    st.lists(st.integers(10, 16_000), min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(0, 8), st.sampled_from([None, 0.0, 0.5])), min_size=1, max_size=12),
    st.builds(
        CpuBurstSettings,
        policy=st.sampled_from(["auto", "cpuBurstOnly", "cfsQuotaBurstOnly"]),
        cpu_burst_percent=st.integers(1, 10000),
        cfs_quota_burst_percent=st.integers(100, 1000),
        cfs_quota_burst_period_seconds=st.integers(-1, 30),
    ),
    st.randoms(use_true_random=False),
)
def test_in_whatever_order_the_kernel_takes_it(
    limits: list[int], ticks: list[tuple[float, float | None]], config: CpuBurstSettings, random: Any
) -> None:
    web = pod("web", QoSClass.LS, limits={"cpu": sum(limits)})
    mains = [container(web, f"c{i}", limits={"cpu": limit}) for i, limit in enumerate(limits)]
    kernel = Kernel([web, *mains])
    strategy = CpuBurst(config)
    for second, (cores, throttled) in enumerate(ticks):
        now = [
            replace(main, knobs={Knob.CPU_MAX: f"{kernel.quota[main.path]} 100000"}, throttled_ratio=throttled)
            for main in mains
        ]
        intents = strategy.decide(view(web, *now, cores=cores), float(second))
        wanted = settings(intents)
        for group in (web, *mains):
            if (group.path, Knob.CPU_MAX) not in wanted:
                kernel.quota[group.path] = quota_of(group)
        random.shuffle(intents)
        kernel.write(intents)
        for main, limit in zip(mains, limits, strict=True):
            assert limit * 100 <= kernel.quota[main.path] <= limit * config.cfs_quota_burst_percent
            assert kernel.quota[main.path] <= max(limit * 100, 800_000)
        assert kernel.quota[web.path] >= sum(kernel.quota[main.path] for main in mains)
