from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import parse_cpuset
from api.intents import Evict, Knob
from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.strategies.disk_limits import BlkioBlock, BlkioDevice, Block
from koordlet.strategies.network_rates import PodNetwork
from koordlet.strategies.plugins.resource_pools import (
    COOLDOWN_SECONDS,
    HOURS,
    Degrade,
    PoolSettings,
    ResourcePools,
    ResourcePoolsSettings,
)
from koordlet.strategies.pool_isolation import ForcedPreemption, PoolMemory
from koordlet.strategies.resctrl_masks import ResctrlBlock
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import CacheControl, Group
from tests.koordlet.strategies.views import container, machine, node, pod, settings, view

NONE: dict[str, Any] = dict.fromkeys(("workloads", "memory", "blkioQOS", "resctrlQOS", "networkQOS", "oomScoreAdj"))
DEFAULTS = {
    "gates": {},
    "settings": {
        "enable": False,
        "pools": [
            {
                "name": "critical",
                "priorityClasses": ["koord-prod"],
                "lowPercent": 30,
                "highPercent": 50,
                "leastCpus": 1,
                "labels": {},
                "peakMillicores": [],
                **NONE,
            },
            {
                "name": "ordinary",
                "priorityClasses": ["koord-mid"],
                "lowPercent": 45,
                "highPercent": 60,
                "leastCpus": 1,
                "labels": {},
                "peakMillicores": [],
                **NONE,
            },
            {
                "name": "offline",
                "priorityClasses": ["koord-batch", "koord-free"],
                "lowPercent": 50,
                "highPercent": 80,
                "leastCpus": 1,
                "labels": {},
                "peakMillicores": [],
                **NONE,
            },
        ],
        "releaseSeconds": 30,
        "degrade": None,
        "forcedPreemption": None,
    },
}

ON = ResourcePoolsSettings(enable=True, release_seconds=0)
NODE = node(machine(cores=10))


def prod(cores: float | None, **more: Any) -> Group:
    usage = {} if cores is None else {"cores": cores}
    return pod("prod", QoSClass.LS, priority=9500, **usage, **more)


def mid(cores: float) -> Group:
    return pod("mid", QoSClass.LS, priority=7500, cores=cores)


BE = pod("be", QoSClass.BE, priority=5500, cores=4)


def sizes(strategy: ResourcePools, *groups: Group, **more: Any) -> list[int]:
    """CPUs of each pod, in order."""
    wanted = settings(strategy.decide(view(*groups, **{"on": NODE, **more}), 0.0))
    return [len(parse_cpuset(wanted.get((group.path, Knob.CPUSET_CPUS), ""))) for group in groups]


def test_pools_follow_the_load_and_stay_apart() -> None:
    strategy = ResourcePools(ON)
    assert sizes(strategy, prod(2), mid(1), BE) == [5, 2, 13]
    assert sizes(strategy, prod(2.4), mid(1), BE) == [5, 2, 13], "within the band"
    assert sizes(strategy, prod(4), mid(1), BE) == [10, 2, 8]
    assert sizes(strategy, prod(1), mid(1), BE) == [3, 2, 15]
    wanted = settings(strategy.decide(view(prod(1), mid(1), BE, on=NODE), 0.0))
    cpus = [parse_cpuset(value) for value in wanted.values()]
    assert sorted(cpu for one in cpus for cpu in one) == list(range(20))


def test_what_it_lacks_it_takes_at_once_and_gives_late() -> None:
    strategy = ResourcePools(ResourcePoolsSettings(enable=True))
    loads = {0: 1, 5: 4, 6: 1, 30: 1, 31: 4, 32: 1, 61: 1, 62: 1}
    seen = {}
    for second, cores in loads.items():
        one = prod(cores)
        wanted = settings(strategy.decide(view(one, BE, on=NODE), float(second)))
        seen[second] = len(parse_cpuset(wanted[one.path, Knob.CPUSET_CPUS]))
    assert seen == {0: 3, 5: 10, 6: 10, 30: 10, 31: 10, 32: 10, 61: 10, 62: 3}


def test_a_pool_that_lost_its_pods_gives_at_once() -> None:
    strategy = ResourcePools(ResourcePoolsSettings(enable=True))
    assert sizes(strategy, prod(4), BE) == [10, 10]
    assert sizes(strategy, BE) == [20]


def test_containers_have_their_pods_cpus() -> None:
    strategy = ResourcePools(ON)
    wanted = settings(strategy.decide(view(BE, container(BE), on=NODE), 0.0))
    assert wanted[BE.path, Knob.CPUSET_CPUS] == wanted[f"{BE.path}/main", Knob.CPUSET_CPUS] == "0-19"


def test_under_the_static_policy_only_containers_are_written() -> None:
    strategy = ResourcePools(ON)
    wanted = settings(strategy.decide(view(BE, container(BE), on=node(machine(cores=10), kubelet_static=True)), 0.0))
    assert set(wanted) == {(f"{BE.path}/main", Knob.CPUSET_CPUS)}


def test_a_pod_that_is_not_measured_yet_counts_what_it_requests() -> None:
    assert sizes(ResourcePools(ON), prod(None, requests={"cpu": 4000}), BE) == [10, 10]


def test_one_that_is_missed_for_a_tick_keeps_what_it_had() -> None:
    strategy = ResourcePools(ON)
    assert sizes(strategy, prod(4), BE) == [10, 10]
    assert sizes(strategy, prod(None, requests={"cpu": 1000}), BE) == [10, 10]


def test_a_limit_bounds_the_pool() -> None:
    assert sizes(ResourcePools(ON), prod(6, limits={"cpu": 8000}), BE) == [8, 12]


def test_protected_pods_and_their_cpus_are_in_no_pool() -> None:
    lsr = pod("lsr", QoSClass.LSR, cores=1, bound_cpus=frozenset({0, 1}))
    own = pod("own", QoSClass.LS, cores=1, bound_cpus=frozenset({2}))
    strategy = ResourcePools(ON)
    wanted = settings(strategy.decide(view(lsr, own, BE, on=NODE), 0.0))
    assert {target for target, _ in wanted} == {BE.path}
    assert wanted[BE.path, Knob.CPUSET_CPUS] == "3-19"


def test_in_an_overloaded_pool_the_least_important_pods_are_degraded_until_it_is_not() -> None:
    config = ResourcePoolsSettings(enable=True, degrade=Degrade(interval_seconds=1))
    strategy = ResourcePools(config)

    def quotas(big: float, second: int) -> dict[str, str]:
        pods = [
            pod("big", QoSClass.LS, priority=9500, cores=big, limits={"cpu": 20_000}),
            pod("low", QoSClass.LS, priority=9000, cores=5, limits={"cpu": 6_000}),
        ]
        idle = pod("be", QoSClass.BE, priority=5500, cores=0)
        wanted = settings(strategy.decide(view(*pods, idle, on=NODE), float(second)))
        return {path[-3:]: value for (path, knob), value in wanted.items() if knob is Knob.CPU_MAX}

    # 19 CPUs for 20 cores of usage, of which 18.05 are tolerated; a first step takes nothing from low's 5 of 6.
    assert quotas(15, 0) == {"low": "540000 100000", "big": "1800000 100000"}
    assert quotas(15, 1) == {"low": "486000 100000", "big": "1620000 100000"}
    assert quotas(5, 2) == {"low": "534600 100000", "big": "1782000 100000"}
    assert quotas(5, 3) == {"low": "588000 100000", "big": "1960200 100000"}
    assert quotas(5, 4) == {}


def test_degrading_goes_in_intervals_and_stands_in_between() -> None:
    strategy = ResourcePools(ResourcePoolsSettings(enable=True, degrade=Degrade()))
    big = pod("big", QoSClass.LS, priority=9500, cores=20, limits={"cpu": 40_000})
    wanted = [settings(strategy.decide(view(big, on=NODE), float(second))) for second in range(11)]
    caps = [one[big.path, Knob.CPU_MAX] for one in wanted]
    assert caps == ["3600000 100000"] * 10 + ["3240000 100000"]


def test_two_pools_will_do() -> None:
    spec = [
        {"name": "a", "priorityClasses": ["koord-prod"], "lowPercent": 1, "highPercent": 2},
        {"name": "b", "priorityClasses": ["koord-batch"], "lowPercent": 1, "highPercent": 2},
    ]
    document = {"extensions": {"resourcePools": {"pools": spec}}}
    assert len(settings_of(ResourcePoolsSettings, ResourcePools.section, document, "file").pools) == 2


def test_too_small_a_node_is_told() -> None:
    strategy = ResourcePools(ON)
    assert strategy.decide(view(prod(1), mid(1), BE, on=node(2)), 0.0) == []
    assert "lower leastCpus" in strategy.problems[strategy.section]


def test_where_cpus_are_too_few_pools_have_all_that_is_not_of_cpus() -> None:
    strategy = pools(critical(oom_score_adj=-500), forced_preemption=ForcedPreemption())
    one = prod(1)
    seen = view(one, container(one), mid(1), BE, on=node(2), memory_bytes=99 * GIB)
    assert settings(strategy.decide(seen, 0.0)) == {(f"{one.path}/main", Knob.OOM_SCORE_ADJ): "-500"}
    assert "lower leastCpus" in strategy.problems[strategy.section]


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=6))
def test_every_cpu_has_one_pool_and_calm_changes_nothing(ticks: list[tuple[float, float, float]]) -> None:
    strategy = ResourcePools(ON)
    for first, second, third in ticks:
        groups = (prod(first), mid(second), pod("be", QoSClass.BE, priority=5500, cores=third))
        wanted = settings(strategy.decide(view(*groups, on=NODE), 0.0))
        cpus = [parse_cpuset(wanted[group.path, Knob.CPUSET_CPUS]) for group in groups]
        assert all(cpus)
        assert sorted(cpu for one in cpus for cpu in one) == list(range(20))
    for _ in range(3):
        settled = settings(strategy.decide(view(*groups, on=NODE), 0.0))
    assert settings(strategy.decide(view(*groups, on=NODE), 0.0)) == settled


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        pytest.param(
            [{"name": "a", "priorityClasses": ["koord-mid"], "lowPercent": 1, "highPercent": 2}],
            "at least two",
            id="one",
        ),
        pytest.param(
            [{"name": "a", "priorityClasses": [], "lowPercent": 50, "highPercent": 50}] * 2, "must be below", id="band"
        ),
        pytest.param(
            [{"name": n, "priorityClasses": ["koord-mid"], "lowPercent": 1, "highPercent": 2} for n in "ab"],
            "each priority class in one",
            id="twice",
        ),
        pytest.param(
            [{"name": "a", "priorityClasses": [], "lowPercent": 0.3, "highPercent": 2}], "whole number", id="x"
        ),
    ],
)
def test_refused_settings(pools: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        spec = {"extensions": {"resourcePools": {"pools": pools}}}
        settings_of(ResourcePoolsSettings, ResourcePools.section, spec, "file")


NIGHT = 3 * 3600.0


def floored(peak: int, hour: int, **more: Any) -> ResourcePoolsSettings:
    peaks = tuple(peak if each == hour else 0 for each in range(HOURS))
    pools = (
        PoolSettings(
            name="critical", bands=("koord-prod",), low_percent=30, high_percent=50, peak_millicores=peaks, **more
        ),
        *ON.pools[1:],
    )
    return ResourcePoolsSettings(enable=True, release_seconds=0, pools=pools)


@pytest.mark.parametrize(
    ("at", "peak", "expected"),
    [
        pytest.param(NIGHT, 4000, 8, id="peak-at-the-upper-bound"),
        pytest.param(NIGHT - 600, 4000, 2, id="the-hour-before"),
        pytest.param(NIGHT - 200, 4000, 8, id="just-before"),
        pytest.param(NIGHT + 3599, 4000, 8, id="its-end"),
        pytest.param(NIGHT + 86_400 * 20_000, 4000, 8, id="each-day"),
        pytest.param(NIGHT, 10_000_000, 19, id="more-than-there-is"),
    ],
)
def test_a_predicted_peak_is_held_as_a_floor(at: float, peak: int, expected: int) -> None:
    strategy = ResourcePools(floored(peak, 3))
    assert sizes(strategy, prod(0.8), BE, time_seconds=at)[0] == expected


def test_a_floor_takes_no_pool_its_last_cpus_and_needs_pods() -> None:
    strategy = ResourcePools(floored(10_000_000, 3))
    assert sizes(strategy, prod(0.8), mid(8), BE, time_seconds=NIGHT) == [18, 1, 1]
    assert sizes(ResourcePools(floored(10_000_000, 3)), mid(1), BE, time_seconds=NIGHT)[0] < 5


def test_labels_choose_a_pool_before_bands_do() -> None:
    labelled = PoolSettings(name="grade-a", labels={"grade": "a"}, low_percent=30, high_percent=50, least_cpus=6)
    strategy = ResourcePools(ResourcePoolsSettings(enable=True, pools=(labelled, *ON.pools)))
    other = replace(mid(0.1), labels={"grade": "a"})
    assert sizes(strategy, prod(0.1), other, BE)[1] == 6
    guarded = pod("guarded", QoSClass.LSR, labels={"grade": "a"}, cores=1)
    assert all("guarded" not in path for path, _ in settings(strategy.decide(view(guarded, BE, on=NODE), 0.0)))


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        pytest.param({"peakMillicores": [1, 2]}, "not 24", id="hours"),
        pytest.param({"priorityClasses": []}, "has no members", id="members"),
    ],
)
def test_pools_that_cannot_be_held_are_refused(pool: dict[str, Any], problem: str) -> None:
    stated = {"name": "p", "priorityClasses": ["koord-prod"], "lowPercent": 10, "highPercent": 20, **pool}
    document = {"extensions": {"resourcePools": {"enable": True, "pools": [stated, stated]}}}
    with pytest.raises(SettingsError, match=problem):
        settings_of(ResourcePoolsSettings, ResourcePools.section, document, "file")


GIB = 1 << 30


def pools(*first: Any, **more: Any) -> ResourcePools:
    return ResourcePools(ResourcePoolsSettings(enable=True, release_seconds=0, pools=(*first, *ON.pools[1:]), **more))


def critical(**more: Any) -> PoolSettings:
    return PoolSettings(name="critical", bands=("koord-prod",), low_percent=30, high_percent=50, **more)


def test_workloads_that_the_manager_lists_are_members() -> None:
    strategy = pools(critical(workloads=("Deployment/a/web",), least_cpus=6))
    assert sizes(strategy, replace(mid(0.1), workload="Deployment/a/web"), BE) == [6, 14]
    assert sizes(strategy, replace(mid(0.1), workload="Deployment/a/other"), BE)[0] < 6


def test_each_pool_has_disk_cache_network_and_oom_settings_of_its_own() -> None:
    block = BlkioBlock(
        enable=True, blocks=(Block(name="vda", io_cfg=BlkioDevice(read_bps=1000, io_weight_percent=40)),)
    )
    strategy = pools(
        critical(
            blkio_qos=block,
            resctrl_qos=ResctrlBlock(enable=True, start_percent=50),
            network_qos=PodNetwork(egress_limit="80M", ingress_limit="8M"),
            oom_score_adj=-500,
        )
    )
    one = prod(1)
    host = node(machine(cores=10), disks={"vda": "8:0"}, cache=CacheControl(mask=0xFF))
    wanted = settings(strategy.decide(view(one, container(one), BE, container(BE), on=host), 0.0))
    del wanted[one.path, Knob.CPUSET_CPUS], wanted[f"{one.path}/main", Knob.CPUSET_CPUS]
    assert {key: value for key, value in wanted.items() if not key[0].startswith(BE.path)} == {
        (one.path, Knob.IO_MAX): "8:0 rbps=1000 wbps=max riops=max wiops=max",
        (one.path, Knob.IO_WEIGHT): "8:0 40",
        ("koordlet-pool-critical", Knob.RESCTRL_SCHEMATA): "L3:0=f0",
        (f"{one.path}/main", Knob.RESCTRL_GROUP): "koordlet-pool-critical",
        (one.path, Knob.NET_CLASS): "rate=10000000 ceil=10000000 prio=2",
        (one.path, Knob.NET_INGRESS): "1000000",
        (f"{one.path}/main", Knob.OOM_SCORE_ADJ): "-500",
    }
    assert {knob for path, knob in wanted if path.startswith(BE.path)} == {Knob.CPUSET_CPUS}


def test_settings_that_the_node_cannot_follow_are_told_and_protected_pods_have_none() -> None:
    block = BlkioBlock(enable=True, blocks=(Block(name="gone"),))
    strategy = pools(critical(blkio_qos=block, network_qos=PodNetwork(egress_limit="x"), labels={"a": "b"}))
    guarded = pod("guarded", QoSClass.LSR, priority=9500, labels={"a": "b"}, cores=1)
    wanted = settings(strategy.decide(view(prod(1), guarded, BE, on=NODE), 0.0))
    assert {knob for _, knob in wanted} == {Knob.CPUSET_CPUS}
    assert all(guarded.path not in path for path, _ in wanted)
    assert set(strategy.problems) == {"gone", "critical"}


def evicted(strategy: ResourcePools, *groups: Group, **more: Any) -> list[str]:
    """Names of the pods evicted once the start of the agent is over."""
    strategy.decide(view(*groups, on=NODE, **more), 0.0)
    asked = strategy.decide(view(*groups, on=NODE, **more), COOLDOWN_SECONDS)
    return [each.target.rpartition("/")[2] for each in asked if isinstance(each, Evict)]


def sized(name: str, qos: QoSClass, gib: float, priority: int) -> Group:
    return pod(name, qos, priority=priority, cores=1, memory_bytes=int(gib * GIB))


def test_a_pool_above_its_share_evicts_its_own_least_important_and_biggest() -> None:
    whole = NODE.memory_bytes / GIB
    strategy = pools(critical(memory=PoolMemory(share_percent=50)))
    web = [
        sized("small", QoSClass.LS, whole * 0.05, 9100),
        sized("big", QoSClass.LS, whole * 0.2, 9100),
        sized("dear", QoSClass.LS, whole * 0.23, 9500),
    ]
    other = sized("batch", QoSClass.BE, whole * 0.4, 5500)
    assert [name[-3:] for name in evicted(strategy, *web, other)] == ["big"]
    strategy = pools(critical(memory=PoolMemory(share_percent=50)))
    assert evicted(strategy, *web[:2], other) == [], "below its share"


def test_pods_of_lower_pools_make_room_when_the_node_is_full_and_the_lowest_goes_first() -> None:
    whole = NODE.memory_bytes / GIB
    groups = [
        sized("web", QoSClass.LS, whole * 0.5, 9500),
        sized("mid", QoSClass.LS, whole * 0.3, 7500),
        sized("be1", QoSClass.BE, whole * 0.1, 5500),
        sized("be2", QoSClass.BE, whole * 0.05, 5400),
    ]
    used = int(0.96 * NODE.memory_bytes)
    assert evicted(pools(critical()), *groups, memory_bytes=used) == []
    forced = {"forced_preemption": ForcedPreemption()}
    assert [name[-3:] for name in evicted(pools(critical(), **forced), *groups, memory_bytes=used)] == ["be2", "be1"]
    assert evicted(pools(critical(), **forced), *groups, memory_bytes=int(0.9 * NODE.memory_bytes)) == []
    assert evicted(pools(critical(), **forced), groups[2], memory_bytes=used) == [], "nobody above it has need"


def test_what_a_pod_that_is_ending_holds_makes_room_on_the_node_but_not_in_its_pool() -> None:
    whole = NODE.memory_bytes / GIB
    web = sized("web", QoSClass.LS, whole * 0.3, 9500)
    ending = replace(sized("ending", QoSClass.BE, whole * 0.1, 5400), active=False)
    be = [sized("be1", QoSClass.BE, whole * 0.3, 5500), sized("be2", QoSClass.BE, whole * 0.19, 5600)]
    seen = {"evictions": {ending.path: 0.0}, "memory_bytes": int(0.96 * NODE.memory_bytes)}
    forced = pools(critical(), forced_preemption=ForcedPreemption())
    assert evicted(forced, web, ending, *be, **seen) == [], "0.06 are missing"
    batch = PoolSettings(
        name="offline",
        bands=("koord-batch",),
        low_percent=50,
        high_percent=80,
        memory=PoolMemory(share_percent=50),
    )
    own = ResourcePools(ResourcePoolsSettings(enable=True, pools=(critical(), batch)))
    assert [name[-3:] for name in evicted(own, web, ending, *be, **seen)] == ["be1"]


def test_evictions_are_apart_and_policies_of_pods_hold() -> None:
    whole = NODE.memory_bytes / GIB
    policy = {"annotations": {"koordinator.sh/eviction-policy": '["MemoryEvict"]'}}
    kept = replace(sized("kept", QoSClass.BE, whole * 0.2, 5000), **policy)
    gone = sized("gone", QoSClass.BE, whole * 0.02, 5500)
    strategy = pools(critical(), forced_preemption=ForcedPreemption())
    seen = view(prod(1), kept, gone, on=NODE, memory_bytes=int(0.99 * NODE.memory_bytes))
    found = [[each for each in strategy.decide(seen, now) if isinstance(each, Evict)] for now in (0.0, 3.9, 4.0, 5.0)]
    assert [len(each) for each in found] == [0, 0, 1, 0]
    assert found[2][0].target == gone.path


def test_an_overloaded_pool_takes_what_is_predicted_of_lower_ones() -> None:
    peaks = (10_000,) * HOURS
    batch = PoolSettings(name="offline", bands=("koord-batch",), low_percent=50, high_percent=80, peak_millicores=peaks)
    both = (critical(), batch)
    plain = ResourcePools(ResourcePoolsSettings(enable=True, release_seconds=0, pools=both))
    forced = ResourcePools(
        ResourcePoolsSettings(enable=True, release_seconds=0, pools=both, forced_preemption=ForcedPreemption())
    )
    for strategy, expected in ((plain, [7, 13]), (forced, [19, 1])):
        assert sizes(strategy, prod(3), BE) == [7, 13]
        assert sizes(strategy, prod(9.5), BE) == expected


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        pytest.param({"name": "Odd/Name"}, "regex", id="name"),
        pytest.param({"name": "odd\n"}, "regex", id="line"),
        pytest.param({"memory": {"sharePercent": 60}}, "sum up to 120", id="shares"),
        pytest.param({"memory": {"sharePercent": 6, "evictPercent": 90}}, "must be below", id="levels"),
        pytest.param({"oomScoreAdj": 1001}, "<= 1000", id="score"),
    ],
)
def test_settings_of_pools_that_contradict_each_other_are_refused(more: dict[str, Any], problem: str) -> None:
    stated = [{"name": name, "labels": {"a": name}, "lowPercent": 10, "highPercent": 20, **more} for name in ("p", "q")]
    if "memory" in more:
        stated[1]["name"] = "q"
    document = {"extensions": {"resourcePools": {"enable": True, "pools": stated}}}
    with pytest.raises(SettingsError, match=problem):
        settings_of(ResourcePoolsSettings, ResourcePools.section, document, "file")
