from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import format_cpuset, parse_cpuset
from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.best_effort import next_count, next_quota_us
from koordlet.strategies.cpuquota import parse_quota
from koordlet.strategies.plugins.cpu_suppress import CpuSuppress, CpuSuppressSettings, allowance_millicores
from koordlet.strategies.view import Group, NodeView
from tests.koordlet.strategies.views import (
    BEST_EFFORT,
    app,
    container,
    directory,
    node,
    pod,
    settings,
    view,
)

DEFAULTS = {
    "gates": {"BECPUSuppress": True, "BECPUManager": False},
    "settings": {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressMinPercent": None,
        "cpuSuppressPolicy": "cpuset",
    },
}

LS_8 = pod("ls", QoSClass.LS, cores=8)
BE_2 = pod("be", QoSClass.BE, cores=2)
AT_70 = CpuSuppressSettings(enable=True, threshold_percent=70)


@pytest.mark.parametrize(
    ("seen", "config", "millicores"),
    [
        pytest.param(view(LS_8, BE_2, on=node(20), cores=12), AT_70, 4000, id="threshold-less-others-less-system"),
        pytest.param(
            view(LS_8, BE_2, app("nginx", QoSClass.LS, cores=1), on=node(20), cores=12), AT_70, 4000, id="application"
        ),
        pytest.param(
            view(LS_8, BE_2, app("spark", "BE", f"{BEST_EFFORT}/spark", cores=1), on=node(20), cores=12),
            AT_70,
            5000,
            id="application-on-lent-cpu",
        ),
        pytest.param(
            view(LS_8, BE_2, app("spark", "BE", cores=1), on=node(20), cores=12),
            AT_70,
            4000,
            id="best-effort-application-elsewhere",
        ),
        pytest.param(
            view(LS_8, BE_2, on=node(20), cores=12),
            CpuSuppressSettings(enable=True, threshold_percent=70, min_percent=60),
            12000,
            id="minimum",
        ),
        pytest.param(
            view(pod("abc", cores=8), pod("def", QoSClass.BE, cores=4), on=node(20), cores=11),
            AT_70,
            6000,
            id="system-is-not-negative",
        ),
        pytest.param(
            view(LS_8, BE_2, on=node(20, allocatable={"cpu": 15000}), cores=12), AT_70, 1000, id="kubelet-reserves"
        ),
        pytest.param(
            view(LS_8, BE_2, on=node(20, reserved={"cpu": 4000}), cores=12), AT_70, 2000, id="annotation-reserves"
        ),
        pytest.param(view(pod("ls", cores=19), on=node(20), cores=20), AT_70, -6000, id="may-be-negative"),
        pytest.param(view(LS_8, on=node(20)), AT_70, None, id="unknown"),
    ],
)
def test_allowance(seen: NodeView, config: CpuSuppressSettings, millicores: int | None) -> None:
    assert allowance_millicores(seen, config) == millicores


@pytest.mark.parametrize(
    ("allowed", "current", "capacity", "quota"),
    [
        pytest.param(20_000, 1_000_000, 80_000, 1_800_000, id="grows-by-a-tenth-of-the-node"),
        pytest.param(20_000, 2_400_000, 80_000, 2_000_000, id="is-cut-at-once"),
        pytest.param(20_000, 1_980_000, 80_000, 1_980_000, id="within-the-dead-band"),
        pytest.param(20_000, 1_920_000, 80_000, 2_000_000, id="at-the-edge-of-the-dead-band"),
        pytest.param(20_000, None, 80_000, 2_000_000, id="from-no-quota"),
        pytest.param(1, 80_000, 80_000, 2_000, id="least"),
        pytest.param(-5_000, 80_000, 80_000, 2_000, id="negative-is-least-not-unlimited"),
        pytest.param(0, 80_000, 80_000, 2_000, id="zero-is-least-not-unlimited"),
    ],
)
def test_next_quota(allowed: int, current: int | None, capacity: int, quota: int) -> None:
    assert next_quota_us(allowed, current, capacity) == quota


@pytest.mark.parametrize(
    ("allowed", "current", "total", "count"),
    [
        pytest.param(4_000, None, 20, 4, id="as-allowed"),
        pytest.param(4_001, None, 20, 5, id="rounded-up"),
        pytest.param(-1, 10, 20, 2, id="least"),
        pytest.param(16_000, 4, 20, 6, id="grows-by-a-tenth"),
        pytest.param(16_000, 4, 25, 7, id="a-tenth-rounded-up"),
        pytest.param(4_000, 16, 20, 4, id="is-cut-at-once"),
        pytest.param(4_100, 4, 20, 4, id="stays-within-the-dead-band"),
        pytest.param(4_200, 4, 20, 5, id="at-the-edge-of-the-dead-band"),
        pytest.param(4_300, 4, 20, 5, id="leaves-the-dead-band"),
        pytest.param(4_000, None, 1, 1, id="no-more-than-there-are"),
    ],
)
def test_next_count(allowed: int, current: int | None, total: int, count: int) -> None:
    assert next_count(allowed, current, total) == count


def test_the_cpus_go_to_the_directory_its_pods_and_their_containers() -> None:
    own = pod("own", QoSClass.BE, bound_cpus=frozenset({6, 7}))
    seen = view(BE_2, container(BE_2), own, container(own), pod("ls", QoSClass.LS, cores=2), on=node(8), cores=4)
    wanted = settings(CpuSuppress(CpuSuppressSettings(enable=True)).decide(seen, 0.0))
    assert {target for target, _ in wanted} == {BEST_EFFORT, BE_2.path, f"{BE_2.path}/main"}
    assert set(wanted.values()) == {"0-3"}


def test_under_the_static_policy_only_containers_are_written() -> None:
    seen = view(BE_2, container(BE_2), on=node(8, kubelet_static=True), cores=2)
    wanted = settings(CpuSuppress(CpuSuppressSettings(enable=True)).decide(seen, 0.0))
    assert set(wanted) == {(f"{BE_2.path}/main", Knob.CPUSET_CPUS)}


def test_cpus_of_others_are_not_lent() -> None:
    lse = pod(
        "lse",
        QoSClass.LSE,
        requests={"cpu": 2000},
        annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'},
    )
    lsr = pod("lsr", QoSClass.LSR, bound_cpus=frozenset({2, 3}))
    seen = view(lse, lsr, BE_2, on=node(12, reserved_cpus=frozenset({4}), system_cpus=frozenset({5})), cores=2)
    wanted = settings(CpuSuppress(CpuSuppressSettings(enable=True)).decide(seen, 0.0))
    # 12 * 65 % - 0 others - max(0 system, 0 reserved) = 7800 millicores, 8 CPUs, of 8: 2 of LSR and 6 shared.
    assert wanted[BEST_EFFORT, Knob.CPUSET_CPUS] == "2-3,6-11"


def test_cpus_of_applications_are_not_lent_either() -> None:
    owner = replace(app("db", QoSClass.LSE), bound_cpus=frozenset({0, 1}))
    wanted = settings(CpuSuppress(CpuSuppressSettings(enable=True)).decide(view(owner, BE_2, on=node(4), cores=0), 0.0))
    assert wanted[BEST_EFFORT, Knob.CPUSET_CPUS] == "2-3"


def test_with_one_quota_for_all_no_pod_has_its_own() -> None:
    seen = view(directory(BEST_EFFORT, knobs={Knob.CPU_MAX: "100000 50000"}), BE_2, container(BE_2), cores=2)
    wanted = settings(CpuSuppress(CpuSuppressSettings(enable=True, policy="cfsQuota")).decide(seen, 0.0))
    # 2 cores now (at a period of 50 ms), 5.2 allowed, a tenth of 8 cores more in one tick.
    assert wanted == {
        (BEST_EFFORT, Knob.CPU_MAX): "280000 100000",
        (BE_2.path, Knob.CPU_MAX): "max 100000",
        (f"{BE_2.path}/main", Knob.CPU_MAX): "max 100000",
    }


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(CpuSuppress(), id="off-by-default"),
        pytest.param(CpuSuppress(AT_70, {"BECPUSuppress": False}), id="gate-closed"),
        pytest.param(CpuSuppress(AT_70, {"BECPUManager": True}), id="left-to-somebody-else"),
    ],
)
def test_switched_off_it_wants_nothing(strategy: CpuSuppress) -> None:
    assert strategy.decide(view(LS_8, BE_2, cores=10), 0.0) == []


def test_it_says_what_it_lacks_and_that_it_is_silent() -> None:
    strategy = CpuSuppress(AT_70)
    assert strategy.decide(view(LS_8, BE_2), 0.0) == []
    assert strategy.silent
    assert "not measured" in strategy.problems["resourceUsedThresholdWithBE"]
    strategy.decide(view(LS_8, BE_2, cores=10), 1.0)
    assert not strategy.silent


def test_without_a_kubelet_classed_applications_are_the_best_effort_work() -> None:
    groups = (
        app("batch.slice", "BE", cores=2),
        app("backup", "BE", cores=1),
        app("nginx", "LS", cores=2),
        app("worker", "LS", "/nginx/worker", cores=2),
    )
    bare = NodeView(node=node(8), groups=groups, cpu_millicores=5000)
    assert settings(CpuSuppress(AT_70).decide(bare, 0.0)) == {
        ("/batch.slice", Knob.CPUSET_CPUS): "0-3",
        ("/backup", Knob.CPUSET_CPUS): "0-3",
    }, "70 % of 8 cores less 2 of nginx"
    strategy = CpuSuppress(CpuSuppressSettings(enable=True, policy="cfsQuota"))
    assert strategy.decide(bare, 0.0) == []
    assert "use cpuSuppressPolicy cpuset" in strategy.problems["resourceUsedThresholdWithBE"]
    nested = replace(bare, groups=(groups[0], app("spark", "BE", "/batch.slice/spark")))
    assert [target for target, _ in settings(strategy.decide(nested, 0.0))] == ["/batch.slice"]


def test_where_nothing_is_best_effort_it_says_so() -> None:
    strategy = CpuSuppress(AT_70)
    assert strategy.decide(NodeView(node=node(8), groups=(LS_8,), cpu_millicores=8000), 0.0) == []
    assert "[[qos]]" in strategy.problems["resourceUsedThresholdWithBE"]
    assert not strategy.silent


@st.composite
def busy(draw: st.DrawFn) -> NodeView:
    count = draw(st.integers(2, 64))
    bound = draw(st.sets(st.integers(0, count - 1), max_size=count - 2))
    pods: list[Group] = [
        pod("lse", QoSClass.LSE, cores=draw(st.floats(0, 64)), bound_cpus=frozenset(list(bound)[: len(bound) // 2])),
        pod("lsr", QoSClass.LSR, cores=draw(st.floats(0, 64)), bound_cpus=frozenset(list(bound)[len(bound) // 2 :])),
        pod("ls", QoSClass.LS, cores=draw(st.floats(0, 64))),
        pod("be", QoSClass.BE, cores=draw(st.floats(0, 64))),
    ]
    quota = draw(st.one_of(st.just("max 100000"), st.integers(1000, 10_000_000).map(lambda us: f"{us} 100000")))
    cpus = format_cpuset(range(draw(st.integers(1, count))))
    held = directory(BEST_EFFORT, knobs={Knob.CPU_MAX: quota, Knob.CPUSET_CPUS: cpus})
    return view(held, *pods, on=node(count), cores=draw(st.floats(0, 64)))


configs = st.builds(
    CpuSuppressSettings,
    enable=st.just(True),
    threshold_percent=st.integers(0, 100),
    min_percent=st.one_of(st.none(), st.integers(0, 100)),
)


def held(seen: NodeView, knob: Knob, value: str) -> NodeView:
    """The view after the directory's knob was written."""
    groups = tuple(
        replace(group, knobs={**group.knobs, knob: value}) if group.path == BEST_EFFORT else group
        for group in seen.groups
    )
    return replace(seen, groups=groups)


@given(busy(), configs)
def test_the_quota_stays_between_floor_and_capacity_and_settles(seen: NodeView, config: CpuSuppressSettings) -> None:
    strategy = CpuSuppress(CpuSuppressSettings(**{**fields(config), "policy": "cfsQuota"}))
    for _ in range(13):
        value = settings(strategy.decide(seen, 0.0))[BEST_EFFORT, Knob.CPU_MAX]
        quota = parse_quota(value)
        assert quota is not None
        assert quota >= 2_000
        seen = held(seen, Knob.CPU_MAX, value)
    assert quota <= seen.node.cpu_millicores * 100
    assert quota >= seen.node.cpu_millicores * (config.min_percent or 0)
    assert settings(strategy.decide(seen, 0.0))[BEST_EFFORT, Knob.CPU_MAX] == value


@given(busy(), configs)
def test_the_cpus_are_free_ones_and_settle(seen: NodeView, config: CpuSuppressSettings) -> None:
    strategy = CpuSuppress(config)
    lse = next(pod for pod in seen.pods if pod.qos is QoSClass.LSE)
    for _ in range(13):
        value = settings(strategy.decide(seen, 0.0))[BEST_EFFORT, Knob.CPUSET_CPUS]
        cpus = parse_cpuset(value)
        assert cpus
        assert not cpus & lse.bound_cpus
        seen = held(seen, Knob.CPUSET_CPUS, value)
    assert settings(strategy.decide(seen, 0.0))[BEST_EFFORT, Knob.CPUSET_CPUS] == value


def fields(config: CpuSuppressSettings) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def test_one_quota_limits_nobody_who_may_not_be_limited() -> None:
    proxy = pod("proxy", QoSClass.SYSTEM, directory=BEST_EFFORT, kube_qos="BestEffort")
    strategy = CpuSuppress(CpuSuppressSettings(enable=True, policy="cfsQuota"))
    beside = view(directory(BEST_EFFORT), proxy, BE_2, container(BE_2), on=node(16), cores=10)
    wanted = settings(strategy.decide(beside, 0.0))
    # 16 * 65 % - 8 of others = 2.4 CPUs: the directory, which holds the other too, is left as it is.
    assert wanted == {(BE_2.path, Knob.CPUSET_CPUS): "0-2", (f"{BE_2.path}/main", Knob.CPUSET_CPUS): "0-2"}
    assert any("fewer CPUs" in problem for problem in strategy.problems.values())
    alone = settings(strategy.decide(view(directory(BEST_EFFORT), BE_2, on=node(16), cores=10), 0.0))
    assert (BEST_EFFORT, Knob.CPU_MAX) in alone


def test_cpus_are_not_taken_from_a_directory_that_holds_who_may_not_be_limited() -> None:
    proxy = pod("proxy", QoSClass.SYSTEM, directory=BEST_EFFORT, kube_qos="BestEffort")
    strategy = CpuSuppress(CpuSuppressSettings(enable=True))
    wanted = settings(strategy.decide(view(directory(BEST_EFFORT), proxy, BE_2, on=node(16), cores=10), 0.0))
    assert [path for path, _ in wanted] == [BE_2.path]
