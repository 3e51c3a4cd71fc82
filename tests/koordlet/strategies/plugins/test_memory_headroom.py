"""Memory is kept free in this order: take page cache, cap, end; and caps are let go slowly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from api.intents import Evict, Intent, Knob, Reclaim, Setting
from api.protocol import ANNOTATION_EVICTION_POLICY
from api.settings import SettingsError
from koordlet.strategies.plugins.memory_headroom import (
    MemoryHeadroom,
    MemoryHeadroomSettings,
    Shortage,
    need_of,
    next_cap,
    reclaim_plan,
)
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import Group, MemoryDomain, NodeInfo, NodeView
from tests.koordlet.strategies.views import app, node, pod, view

DEFAULTS = {
    "gates": {},
    "settings": {
        "enable": False,
        "lowPercent": 5,
        "highPercent": 10,
        "targetPercent": 15,
        "lookaheadSeconds": 5,
        "evictSeconds": 3,
        "reclaimPercent": 20,
        "stepPercent": 10,
        "floorBytes": 67108864,
        "releaseSeconds": 10,
        "terminationGracePeriodSeconds": 10,
    },
}

MIB = 1 << 20
LIMIT = 1000 * MIB
ON = MemoryHeadroomSettings(enable=True)
WEB, SCAN, SORT = "/shop/web", "/shop/scan", "/shop/sort"


def domain(free: int, held: Mapping[str, int], reclaimed: Mapping[str, int] | None = None, path: str = "/shop") -> Any:
    """Sizes in MiB."""
    return MemoryDomain(
        path=path,
        limit_bytes=LIMIT,
        free_bytes=free * MIB,
        usage_bytes={name: size * MIB for name, size in held.items()},
        reclaimable_bytes={name: size * MIB for name, size in (reclaimed or {}).items()},
    )


def seen(*domains: MemoryDomain, on: NodeInfo | None = None, groups: tuple[Group, ...] = (), **more: Any) -> NodeView:
    apps = [app("web", "LS", path=WEB), app("scan", "BE", path=SCAN), app("sort", "BE", path=SORT)]
    return view(*(groups or apps), on=on, memory_domains=domains, **more)


def said(intents: list[Intent]) -> list[tuple[str, str, int]]:
    """Return the intents by target, in MiB where they have a size."""
    found = []
    for intent in intents:
        name = intent.target.rpartition("/")[2]
        if isinstance(intent, Reclaim):
            found.append(("reclaim", name, intent.amount_bytes // MIB))
        elif isinstance(intent, Setting):
            found.append((str(intent.knob), name, int(intent.value) // MIB))
        else:
            found.append(("evict", name, 0))
    return found


def steady(free: int, scan: int = 300, sort: int = 400, cache: int = 200) -> NodeView:
    """Online work that does not grow, beside a reader with page cache and a sorter without."""
    return growing(free, 240, scan, sort, cache)


def growing(free: int, web: int, scan: int = 300, sort: int = 400, cache: int = 200) -> NodeView:
    """The same with so much online work."""
    return seen(domain(free, {WEB: web, SCAN: scan, SORT: sort}, {SCAN: cache, SORT: 0}))


@pytest.mark.parametrize(
    ("free", "growth", "short", "missing"),
    [
        pytest.param(100, 0, False, 50, id="at-the-high-watermark"),
        pytest.param(99, 0, True, 51, id="below-it"),
        pytest.param(300, 50, False, 0, id="six-seconds-left"),
        pytest.param(240, 50, True, 10, id="less-than-the-lookahead"),
        pytest.param(300, 1000, True, 200, id="half-of-the-limit-at-most"),
        pytest.param(99, -80, True, 51, id="shrinking"),
    ],
)
def test_need(free: int, growth: int, short: bool, missing: int) -> None:
    need = need_of(domain(free, {}), growth * MIB, ON)
    assert (need.short, need.missing) == (short, missing * MIB)


def test_growth_is_the_faster_of_the_last_seconds_and_the_last_moments() -> None:
    shortage = Shortage()
    online = [100, 100, 160, 160, 220]
    found = [shortage.add_online(float(second), size) for second, size in enumerate(online)]
    assert found == [(0, 0), (0, 0), (60, 60), (20, 0), (60, 60)]
    assert shortage.add_online(20.0, 300) == (0, 0), "what is long ago does not count"


@pytest.mark.parametrize(
    ("reclaimed", "missing", "plan"),
    [
        pytest.param({SCAN: 300, SORT: 50}, 100, {SCAN: 100}, id="the-biggest-first"),
        pytest.param({SCAN: 60, SORT: 50}, 100, {SCAN: 60, SORT: 40}, id="then-the-next"),
        pytest.param({SCAN: 900}, 800, {SCAN: 200}, id="bounded-for-a-tick"),
        pytest.param({SCAN: 0}, 100, {}, id="nothing-there"),
        pytest.param({f"/{n}": 2 for n in range(9)}, 100, {f"/{n}": 2 for n in range(8)}, id="few-in-a-tick"),
    ],
)
def test_takes(reclaimed: dict[str, int], missing: int, plan: dict[str, int]) -> None:
    found = reclaim_plan(domain(0, {}, reclaimed), missing * MIB, ON, 4096)
    assert found == {path: size * MIB for path, size in plan.items()}


@pytest.mark.parametrize(
    ("used", "cache", "current", "hard", "cap"),
    [
        pytest.param(400, 400, None, False, 360, id="a-step-below-use"),
        pytest.param(400, 400, 300, False, 270, id="a-step-below-the-last"),
        pytest.param(200, 200, 300, False, 180, id="use-has-fallen"),
        pytest.param(320, 0, None, False, 330, id="what-it-cannot-give-up-and-a-little"),
        pytest.param(320, 0, None, True, 400, id="more-room-below-a-hard-limit"),
        pytest.param(20, 20, None, False, 64, id="the-floor"),
        pytest.param(320, 0, 333, False, 333, id="near-enough"),
    ],
)
def test_caps(used: int, cache: int, current: int | None, hard: bool, cap: int) -> None:
    held = domain(0, {SCAN: used}, {SCAN: cache})
    found = next_cap(held, SCAN, None if current is None else current * MIB, ON, hard=hard)
    assert found // MIB == cap


def test_first_taken_then_capped_then_ended() -> None:
    strategy = MemoryHeadroom(ON)
    ticks = [
        strategy.decide(steady(60), 0.0),
        strategy.decide(steady(60, cache=0, scan=100), 1.0),
        strategy.decide(steady(40, cache=0, scan=100), 2.0),
        strategy.decide(steady(40, cache=0, scan=100), 3.0),
    ]
    story = [said(intents) for intents in ticks]
    caps = [("memory.high", "scan", 103), ("memory.high", "sort", 412)]
    assert story == [[("reclaim", "scan", 90)], caps, caps, [("evict", "sort", 0), *caps]]
    begun = {intent.target: 3.0 for intent in ticks[-1] if isinstance(intent, Evict)}
    after = replace(steady(40, cache=0, scan=100), evictions=begun)
    assert said(strategy.decide(after, 4.0)) == caps, "what it holds is on its way"


def test_what_sufficed_is_followed_by_nothing() -> None:
    strategy = MemoryHeadroom(ON)
    assert said(strategy.decide(steady(60), 0.0)) == [("reclaim", "scan", 90)]
    for second in range(1, 30):
        assert strategy.decide(steady(150, cache=110), float(second)) == []
    assert said(strategy.decide(steady(60), 30.0)) == [("reclaim", "scan", 90)], "a new shortage begins anew"


def test_an_end_is_not_put_off_when_everything_is_gone_before() -> None:
    strategy = MemoryHeadroom(ON)
    told = [
        [what for what, _, _ in said(strategy.decide(growing(free, 700 - free, 0, 300, 0), float(second)))]
        for second, free in enumerate((400, 300, 200, 100))
    ]
    assert told == [[], ["memory.high"] * 2, ["memory.high"] * 2, ["evict", "memory.high", "memory.high"]]


def test_a_leap_ends_nobody() -> None:
    strategy = MemoryHeadroom(ON)
    for second, free in enumerate((450, 200, 200, 200, 200, 200, 200, 200)):
        intents = strategy.decide(growing(free, 700 - free, 0, 300, 0), float(second))
        assert not any(isinstance(intent, Evict) for intent in intents)


def test_nobody_is_ended_while_page_cache_covers_what_is_missing() -> None:
    strategy = MemoryHeadroom(ON)
    for second in range(20):
        intents = strategy.decide(steady(10, cache=200), float(second))
        assert not any(isinstance(intent, Evict) for intent in intents)


def test_the_least_important_is_ended_first_and_no_more_than_needed() -> None:
    groups = (pod("web", "LS"), pod("dear", "BE", priority=5900), pod("cheap", "BE", priority=5100))
    held = {group.path: 200 for group in groups}
    reclaimed = {group.path: 0 for group in groups[1:]}
    strategy = MemoryHeadroom(ON)
    begun: dict[str, float] = {}
    for second in range(6):
        looked = replace(seen(domain(40, held, reclaimed, "/"), groups=groups), evictions=begun)
        intents = strategy.decide(looked, float(second))
        begun |= {intent.target: float(second) for intent in intents if isinstance(intent, Evict)}
    assert [path.rpartition("/pod")[2] for path in begun] == ["cheap"]


def test_under_a_cap_that_goes_no_lower_nothing_is_taken_unless_every_page_counts() -> None:
    strategy = MemoryHeadroom(ON)
    for second in range(6):
        calm = said(strategy.decide(steady(80, scan=70, sort=400, cache=60), float(second)))
    assert [what for what, _, _ in calm] == ["memory.high", "memory.high"]
    assert ("reclaim", "scan", 60) in said(strategy.decide(steady(40, scan=70, sort=400, cache=60), 6.0))
    growing_now = growing(80, 260, scan=70, sort=400, cache=60)
    assert ("reclaim", "scan", 60) in said(strategy.decide(growing_now, 7.0))


def test_protected_and_latency_sensitive_work_is_left_alone() -> None:
    critical = pod("critical", "BE", priority=2_000_000_000)
    groups = (pod("web", "LS"), critical, pod("gone", "BE", active=False))
    held = {group.path: 300 for group in groups}
    strategy = MemoryHeadroom(ON)
    for second in range(8):
        looked = seen(domain(5, held, dict.fromkeys(held, 100), "/"), groups=groups)
        assert strategy.decide(looked, float(second)) == []


def test_caps_rise_slowly_and_end_when_they_hold_nothing_back() -> None:
    strategy = MemoryHeadroom(ON)
    strategy.decide(steady(60), 0.0)
    (cap,) = [entry for entry in said(strategy.decide(steady(60), 1.0)) if entry[:2] == ("memory.high", "scan")]
    assert cap[2] == 270
    caps = []
    for second in range(2, 62):
        wanted = said(strategy.decide(steady(400, scan=230, sort=400, cache=50), float(second)))
        caps.append({name: size for what, name, size in wanted if what == "memory.high"}.get("scan"))
    assert caps[:9] == [270] * 9, "calm for a while first"
    assert caps[9:19] == [320] * 10
    assert caps[19] is None, "far above what it uses"


def test_between_the_watermarks_caps_stand() -> None:
    strategy = MemoryHeadroom(ON)
    strategy.decide(steady(60), 0.0)
    stands = said(strategy.decide(steady(60), 1.0))[1:]
    for second in range(2, 60):
        assert said(strategy.decide(steady(120), float(second))) == stands


def test_where_nobody_was_looked_at_caps_stand() -> None:
    strategy = MemoryHeadroom(ON)
    strategy.decide(steady(60), 0.0)
    stands = said(strategy.decide(steady(60), 1.0))[1:]
    assert said(strategy.decide(seen(domain(700, {})), 2.0)) == stands


def test_without_memory_high_the_limit_is_set() -> None:
    strategy = MemoryHeadroom(ON)
    old = node(lacking=frozenset({Knob.MEMORY_HIGH}))
    held = domain(60, {WEB: 240, SCAN: 300, SORT: 400}, {SCAN: 200, SORT: 0})
    strategy.decide(seen(held, on=old), 0.0)
    caps = said(strategy.decide(seen(held, on=old), 1.0))[1:]
    assert caps == [("memory.max", "scan", 270), ("memory.max", "sort", 500)]


@pytest.mark.parametrize(
    ("may_evict", "policy", "capped"),
    [
        pytest.param(True, None, True, id="allowed"),
        pytest.param(False, None, False, id="nothing-may-be-ended"),
        pytest.param(True, "[]", False, id="the-pod-forbids-it"),
        pytest.param(True, '["MemoryHeadroom"]', True, id="the-pod-allows-it"),
    ],
)
def test_a_limit_that_kills_needs_the_right_to_evict(may_evict: bool, policy: str | None, capped: bool) -> None:
    strategy = MemoryHeadroom(ON)
    old = node(lacking=frozenset({Knob.MEMORY_HIGH}))
    held = domain(60, {WEB: 240, SCAN: 300}, {SCAN: 0})
    scan = app("scan", "BE", path=SCAN)
    if policy is not None:
        scan = replace(scan, annotations={ANNOTATION_EVICTION_POLICY: policy})
    groups = (app("web", "LS", path=WEB), scan)
    found: list[tuple[str, str, int]] = []
    for second in range(3):
        found += said(strategy.decide(seen(held, on=old, groups=groups, may_evict=may_evict), float(second)))
    assert any(what == "memory.max" for what, _, _ in found) is capped


def test_the_inner_domain_goes_first_and_nobody_is_taken_from_twice() -> None:
    held, reclaimed = {WEB: 240, SCAN: 300, SORT: 400}, {SCAN: 200, SORT: 0}
    both = seen(domain(60, held, reclaimed, "/"), domain(40, held, reclaimed))
    assert said(MemoryHeadroom(ON).decide(both, 0.0)) == [("reclaim", "scan", 110)]


def test_unknown_is_not_plenty() -> None:
    strategy = MemoryHeadroom(ON)
    assert strategy.decide(view(), 0.0) == []
    assert strategy.silent


def test_off_by_default() -> None:
    strategy = MemoryHeadroom()
    assert strategy.decide(steady(10), 0.0) == []
    assert not strategy.needs_memory_domains
    assert not strategy.silent


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"lowPercent": 10}, "must rise in this order", id="order"),
        pytest.param({"highPercent": 0.1}, "whole number", id="fraction"),
        pytest.param({"floorBytes": 0}, "floorBytes", id="no-floor"),
    ],
)
def test_refused_settings(table: dict[str, float], words: str) -> None:
    spec = {"extensions": {"memoryHeadroom": table}}
    with pytest.raises(SettingsError, match=words):
        settings_of(MemoryHeadroomSettings, MemoryHeadroom.section, spec, "file")
