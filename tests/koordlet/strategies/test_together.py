"""Promises of all strategies at once, with everything switched on and any node."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.intents import Evict, Intent, Knob, Reclaim, Setting
from api.qos import QoSClass
from api.settings import merge
from koordlet.host.knobs.table import KNOBS, check
from koordlet.strategies.settings import configure
from koordlet.strategies.strategy import Strategy, discover_strategies, make_strategies
from koordlet.strategies.view import CacheControl, Group, GroupKind, MemoryDomain, NodeView
from tests.koordlet.strategies.views import (
    BEST_EFFORT,
    GIB,
    app,
    container,
    directory,
    machine,
    node,
    pod,
    view,
)


def all_on(suppress: str = "cpuset", **policies: str) -> dict[str, Strategy[Any]]:
    """All strategies with every gate open and the settings of their examples."""
    strategies = make_strategies({gate: True for kind in discover_strategies().values() for gate in kind.features})
    spec: dict[str, Any] = {
        "resourceQOSStrategy": {"policies": policies},
        "resourceUsedThresholdWithBE": {"cpuSuppressPolicy": suppress},
    }
    for strategy in strategies.values():
        section, _, extension = strategy.settings_path.partition(".")
        spec = merge(spec, {section: {extension: strategy.example} if extension else strategy.example})
    assert configure(strategies, spec, "test") == []
    return strategies


amounts = st.one_of(st.none(), st.integers(0, 64))
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@st.composite
def some_pod(draw: st.DrawFn, number: int) -> list[Group]:
    qos = draw(st.sampled_from(QoSClass))
    names = BATCH if qos is QoSClass.BE else ("cpu", "memory")
    cores, gib = draw(amounts), draw(amounts)
    asked = {name: size for name, size in zip(names, ((cores or 0) * 500, (gib or 0) * GIB), strict=True) if size}
    one = pod(
        f"p{number}",
        qos,
        priority=draw(st.sampled_from([None, 0, 5500, 7500, 9500, 2_000_001_000])),
        cpu_millicores=None if cores is None else cores * 250.0,
        memory_bytes=None if gib is None else gib * GIB,
        cache_bytes=draw(amounts),
        memory_pressure_ratio=draw(st.one_of(st.none(), st.floats(0, 1))),
        throttled_ratio=draw(st.one_of(st.none(), st.floats(0, 1))),
        requests=asked if draw(st.booleans()) else {},
        limits=asked if draw(st.booleans()) else {},
        labels={"koordinator.sh/eviction-enabled": "true"} if draw(st.booleans()) else {},
        bound_cpus=frozenset({number}) if qos in (QoSClass.LSE, QoSClass.LSR) else frozenset(),
        active=draw(st.booleans()),
    )
    return [one, container(one)]


@st.composite
def some_view(draw: st.DrawFn) -> NodeView:
    cpus = machine(draw(st.integers(1, 2)), 1, draw(st.integers(1, 8)), draw(st.integers(1, 2)))
    pods = [group for number in range(draw(st.integers(0, 6))) for group in draw(some_pod(number))]
    best_effort = directory(
        BEST_EFFORT,
        cpu_millicores=draw(st.one_of(st.none(), st.floats(0, 32_000))),
        memory_bytes=draw(st.one_of(st.none(), st.integers(0, 100 * GIB))),
    )
    holders = [group.path for group in pods if group.kind is GroupKind.POD]
    held = dict.fromkeys(holders, draw(st.integers(0, 8)) * GIB)
    domain = MemoryDomain(
        path="/kubepods.slice",
        limit_bytes=100 * GIB,
        free_bytes=draw(st.integers(0, 100)) * GIB,
        usage_bytes=held,
        reclaimable_bytes={path: amount // 2 for path, amount in held.items()},
    )
    return view(
        best_effort,
        *pods,
        app("sshd", QoSClass.SYSTEM, cores=0.5),
        on=node(
            cpus,
            allocatable=draw(
                st.dictionaries(st.sampled_from(["cpu", "memory", *BATCH]), st.integers(0, 100_000), max_size=4)
            ),
            disks={"vda": "253:0"},
            cache=CacheControl(mask=0x7FF, bandwidth_domains=(0,)),
            network_bits_per_second=10**10,
        ),
        cores=draw(st.one_of(st.none(), st.floats(0, 32))),
        memory_bytes=draw(st.one_of(st.none(), st.integers(0, 100 * GIB))),
        memory_domains=draw(st.sampled_from([None, (domain,)])),
        evictions=draw(st.dictionaries(st.just("/gone"), st.floats(-100, 0), max_size=1)),
    )


def decisions(seen: NodeView, ticks: int, **policies: str) -> Iterator[tuple[str, list[Intent]]]:
    """Yield the intents of every strategy in some ticks of the same view."""
    for name, strategy in all_on(**policies).items():
        for second in range(ticks):
            yield name, strategy.decide(seen, float(second))


PROTECTING = {
    Knob.MEMORY_MIN,
    Knob.MEMORY_LOW,
    Knob.MEMORY_WMARK_RATIO,
    Knob.MEMORY_WMARK_SCALE_FACTOR,
    Knob.MEMORY_WMARK_MIN_ADJ,
    Knob.MEMORY_PRIORITY,
    Knob.MEMORY_USE_PRIORITY_OOM,
    Knob.MEMORY_OOM_GROUP,
    Knob.CPU_BVT,
    Knob.CPU_BURST,
    Knob.CPU_MAX,
    Knob.CORE_SCHED,
    Knob.NET_CLASS,
    Knob.NET_INGRESS,
}
"""Knobs that protected groups may get at all; what `cpu.max` they get is told apart below."""


@settings(max_examples=40)
@given(some_view(), st.sampled_from(["groupIdentity", "coreSched"]), st.sampled_from(["cpuset", "cfsQuota"]))
def test_protected_groups_lose_nothing(seen: NodeView, cpu_policy: str, suppress: str) -> None:
    protected = {group.path for group in seen.groups if group.protected}
    for name, intents in decisions(seen, 22, suppress=suppress, cpuPolicy=cpu_policy):
        for intent in intents:
            if intent.target not in protected:
                continue
            assert isinstance(intent, Setting), f"{name} takes from {intent.target}"
            assert intent.knob in PROTECTING, f"{name} sets {intent.knob} of {intent.target}"
            assert intent.knob is not Knob.CPU_MAX or name == "cpu_burst", "only burst widens quotas"


@settings(max_examples=40)
@given(some_view())
def test_every_value_is_one_that_the_enforcer_takes(seen: NodeView) -> None:
    paths = {group.path for group in seen.groups} | {"/"}
    for name, intents in decisions(seen, 12):
        owners = [(intent.target, intent.knob) for intent in intents if isinstance(intent, Setting)]
        assert len(owners) == len(set(owners)), f"{name} wants one knob twice"
        for intent in intents:
            assert intent.strategy == name
            assert intent.reason
            if isinstance(intent, Setting):
                check(intent)
                assert not KNOBS[intent.knob].targets_cgroup or intent.target in paths
            else:
                assert isinstance(intent, Evict | Reclaim)
                assert intent.target in paths


@settings(max_examples=40)
@given(some_view())
def test_where_nothing_changes_the_same_is_wanted(seen: NodeView) -> None:
    steady = replace(seen, memory_bytes=None)
    for name, strategy in all_on().items():
        if strategy.repeats:
            continue
        for second in range(12):
            settled = strategy.decide(steady, float(second))
        evictions = [intent for intent in settled if isinstance(intent, Evict)]
        assert not evictions
        assert strategy.decide(steady, 12.0) == settled, f"{name}: decide alike, or set repeats = True in its class"


def test_gates_that_are_closed_close() -> None:
    annotated = {"koordinator.sh/oom-score-adj": "5"}
    groups = [pod(name, qos, cores=1, annotations=annotated) for name, qos in {"be": "BE", "ls": "LS"}.items()]
    groups += [container(group, limits={"cpu": 1000}, requests={"memory": GIB}) for group in groups]
    for name, strategy in all_on().items():
        if strategy.gates and name != "oom_score":
            strategy.gates = dict.fromkeys(strategy.gates, False)
            assert strategy.decide(view(*groups, cores=4), 0.0) == [], name


@pytest.mark.parametrize("name", discover_strategies())
def test_the_example_switches_the_strategy_on(name: str) -> None:
    strategy = all_on()[name]
    assert strategy.settings != type(strategy)().settings, (
        f"koordlet/strategies/plugins/{name}.py: give {type(strategy).__name__} an `example`, the table for "
        f"{strategy.settings_path} that switches all of it on"
    )
