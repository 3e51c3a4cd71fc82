"""Rungs: what each sets, what it needs to know, and what it never does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Intent, Knob, Reclaim, Setting, Strength
from api.verdicts import Verdict
from koordlet.response.host_capabilities import CacheCapabilities, CgroupReads, HostCapabilities
from koordlet.response.ladders import LADDERS, cgroup_reads
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.rungs.cache import schemata
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import StepKind
from tests.koordlet.response.ticks import (
    HOG,
    WEB,
    knobs,
    look,
    verdict_on,
)


def test_missing_knobs_are_passed_over() -> None:
    response = ResponsePolicy()
    wanted = response.step(
        look(0.0, [verdict_on()], capabilities=HostCapabilities(frozenset({Knob.CPU_MAX}), cpus=(0, 1)))
    )
    assert knobs(wanted) == [(HOG, Knob.CPU_MAX, "50000 100000")]


def test_without_idle_cgroups_the_weight_is_lowered() -> None:
    capabilities = HostCapabilities(frozenset(Knob) - {Knob.CPU_IDLE}, cpus=(0, 1))
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=capabilities))) == [
        ("/batch", Knob.CPU_WEIGHT, "1")
    ]


def test_memory_is_reclaimed_once_then_capped() -> None:
    response = ResponsePolicy()
    wanted: list[Intent] = []
    for second in range(8):
        wanted += response.step(look(float(second), [verdict_on(resource="memory")]))
    assert [type(intent) for intent in wanted[:2]] == [Reclaim, Setting]
    assert sum(isinstance(intent, Reclaim) for intent in wanted) == 1
    assert wanted[-1].knob is Knob.MEMORY_HIGH  # type: ignore[union-attr]


def test_a_victim_held_by_its_own_quota_may_catch_up_before_the_culprit_is_moved() -> None:
    capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: 60_000})
    response = ResponsePolicy()
    burst = (WEB, "cpu.max.burst", "60000")
    steps, wanted = [], []
    for second in range(24):
        held = {name for names in response.active_rungs.values() for name in names}
        lost, throttled = (0.2 if "idle" in held else 0.5), (0.05 if "burst" in held else 0.3)  # idle is not enough
        seen = look(second, [verdict_on()], lost=lost, throttled=throttled, capabilities=capabilities)
        wanted = knobs(response.step(seen))
        steps += [(step.rung, step.kind) for step in response.steps]
        assert (burst in wanted) is (("burst", StepKind.APPLIED) in steps)
    assert steps[:5] == [
        ("idle", StepKind.APPLIED),
        ("idle", StepKind.LIFTED),
        ("idle", StepKind.KEPT),
        ("burst", StepKind.APPLIED),
        ("burst", StepKind.KEPT),  # what its quota costs it falls, and that is what the rung was to do
    ]


def test_a_burst_that_changes_nothing_is_taken_back() -> None:
    capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: 60_000})
    response = ResponsePolicy()
    for second in range(12):
        wanted = response.step(
            look(second, [verdict_on()], lost=0.5 if second < 1 else 0.2, throttled=0.3, capabilities=capabilities)
        )
    assert not {knob for _path, knob, _value in knobs(wanted)} & {"cpu.max.burst"}


def test_a_victim_without_quota_or_loss_to_it_or_that_uses_more_than_half_of_it_gets_no_burst() -> None:
    for throttled, quota in ((0.0, 60_000), (0.3, None), (0.3, 59_000)):
        capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: quota})
        response = ResponsePolicy()
        wanted = {
            knob
            for second in range(12)
            for _path, knob, _value in knobs(
                response.step(
                    look(
                        second,
                        [verdict_on()],
                        lost=0.5 if second < 1 else 0.2,
                        throttled=throttled,
                        capabilities=capabilities,
                    )
                )
            )
        }
        assert "cpu.max.burst" not in wanted
        assert "cpu.idle" in wanted


def test_a_trip_finds_the_quota_of_a_throttled_victim_read_in_the_last_tick() -> None:
    burst_alone = HostCapabilities(frozenset({Knob.CPU_BURST}), cpus=(0, 1))
    last = look(0.0, throttled=0.3, capabilities=burst_alone)
    read = dict.fromkeys(cgroup_reads(last, ResponseSettings()).quota, 60_000)
    assert read == {WEB: 60_000}
    response = ResponsePolicy()
    assert response.trip(last, HOG, WEB, resource="cpu", lost=0.4) == []
    known = replace(last, capabilities=replace(burst_alone, cgroup_quota_us=read))
    assert knobs(response.trip(known, HOG, WEB, resource="cpu", lost=0.4)) == [(WEB, Knob.CPU_BURST, "60000")]


POD = "/kubepods/burstable/pod-web"
CONTAINER = f"{POD}/c"


def pod_tick(now: float, *, own: float, above: float, quotas: dict[str, int | None]) -> Observation:
    """A throttled container in a pod with a quota, beside best-effort work that costs it a little."""
    tick = look(
        now,
        [verdict_on(victim=CONTAINER)],
        lost=0.0,
        classes={"/kubepods/burstable": "", POD: "LS", CONTAINER: "LS", "/batch": "BE", HOG: "BE"},
        capabilities=HostCapabilities(frozenset({Knob.CPU_BURST}), cpus=(0, 1), cgroup_quota_us=quotas),
    )
    ids = {POD: "uid-web", CONTAINER: "uid-web"}
    here = np.array([info.path == CONTAINER for info in tick.cgroups])
    return replace(
        tick,
        cgroups=tuple(replace(info, pod_uid=ids.get(info.path, "")) for info in tick.cgroups),
        lost={"cpu": 0.3 * here},
        throttled=own * here,
        throttled_above=above * here,
    )


def test_a_containers_burst_reaches_as_far_as_its_pods_quota_lets_it() -> None:
    known: dict[str, int | None] = {CONTAINER: 60_000, POD: 80_000, "/kubepods/burstable": 400_000}
    tick = pod_tick(0.0, own=0.3, above=0.0, quotas=known)
    assert cgroup_reads(tick, ResponseSettings()).quota == {CONTAINER, POD}
    assert knobs(ResponsePolicy().step(tick)) == [
        (CONTAINER, Knob.CPU_BURST, "60000"),
        (POD, Knob.CPU_BURST, "80000"),
    ]


@pytest.mark.parametrize(
    ("above", "kept"), [pytest.param(0.0, True, id="it-runs"), pytest.param(0.3, False, id="it-waits-one-level-up")]
)
def test_a_burst_is_kept_only_if_no_quota_above_takes_what_it_gives(above: float, kept: bool) -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(12):
        has_burst = bool(response.active_rungs)
        own, moved = (0.0, above) if has_burst else (0.3, 0.0)
        response.step(pod_tick(second, own=own, above=moved, quotas={CONTAINER: 60_000}))
        steps += [(step.rung, step.kind) for step in response.steps]
    assert steps[0] == ("burst", StepKind.APPLIED)
    assert (("burst", StepKind.KEPT) in steps) is kept


BUSY = frozenset({WEB, HOG, "/online", "/batch", "/batch/bystander"})
"""All that use CPU time."""


@pytest.mark.parametrize(
    ("verdicts", "throttled", "fast_path", "expected"),
    [
        pytest.param([], 0.0, True, CgroupReads(), id="calm"),
        pytest.param([verdict_on()], 0.0, True, CgroupReads(BUSY), id="cpu-verdict"),
        pytest.param([verdict_on()], 0.3, False, CgroupReads(BUSY, frozenset({WEB})), id="throttled"),
        pytest.param([], 0.3, True, CgroupReads(quota=frozenset({WEB})), id="throttled-before-a-trip"),
        pytest.param([], 0.3, False, CgroupReads(), id="throttled-without-fast-path"),
        pytest.param([verdict_on(resource="memory")], 0.0, True, CgroupReads(), id="memory-verdict"),
        pytest.param([verdict_on("[kernel]")], 0.0, True, CgroupReads(), id="no-cgroup"),
    ],
)
def test_only_the_cgroups_that_a_rung_may_need_are_read(
    verdicts: list[Verdict], throttled: float, fast_path: bool, expected: CgroupReads
) -> None:
    tick = look(0.0, verdicts, throttled=throttled)
    assert cgroup_reads(tick, ResponseSettings(fast_path=fast_path)) == expected


@pytest.mark.parametrize(
    ("bound", "left"),
    [
        pytest.param({}, "2-3", id="nothing-is-bound"),
        pytest.param({"/shop": {3}}, "1-2", id="the-last-core-is-bound-to"),
        pytest.param({HOG: {2, 3}}, "3", id="the-culprit-itself"),
        pytest.param({"/shop": {0, 1, 3}}, None, id="too-few-others"),
        pytest.param({"/shop": {0, 1, 2, 3}}, "2-3", id="bound-to-none"),
    ],
)
def test_a_culprit_gets_no_core_that_another_is_bound_to(bound: dict[str, set[int]], left: str | None) -> None:
    cpus = {path: frozenset(each) for path, each in bound.items()}
    host = HostCapabilities(frozenset({Knob.CPUSET_CPUS}), cpus=(0, 1, 2, 3), cgroup_cpus=cpus)
    rung = next(each for each in LADDERS["cpu"] if each.name == "cpuset")
    assert rung.steering is not None
    accused = Interference(HOG, WEB, "cpu", "accused", "web|rule", 1.0)
    limit = len(cpus.get(HOG, host.cpus)) / 2
    intents = rung.steering.set_limit(look(0.0, capabilities=host), accused, ResponseSettings(), limit)
    assert [each.value for each in intents if isinstance(each, Setting)] == ([left] if left else [])


@pytest.mark.parametrize(
    ("bound", "left"),
    [
        pytest.param({WEB: {0, 1}}, "2-3", id="no-third"),
        pytest.param({WEB: {0, 1}, "/shop": {3}}, None, id="a-third-where-it-would-move"),
        pytest.param({WEB: {0, 1}, "/shop": {0}}, "2-3", id="a-third-elsewhere"),
        pytest.param({WEB: {0}, HOG: {0, 1, 2}, "/shop": {0, 1, 2, 3}}, "1-2", id="a-third-that-can-give-way"),
        pytest.param({WEB: {0}, HOG: {0, 3}, "/shop": {1, 3}}, None, id="a-third-that-shares-a-part"),
        pytest.param({"/shop": {3}}, None, id="a-victim-that-is-not-bound"),
    ],
)
def test_a_culprit_is_not_moved_to_cpus_that_a_third_is_bound_to(bound: dict[str, set[int]], left: str | None) -> None:
    cpus = {path: frozenset(each) for path, each in bound.items()}
    host = HostCapabilities(frozenset({Knob.CPUSET_CPUS}), cpus=(0, 1, 2, 3), cgroup_cpus=cpus)
    rung = next(each for each in LADDERS["cpu"] if each.name == "separate")
    accused = Interference(HOG, WEB, "cpu", "accused", "web|rule", 1.0)
    intents = rung.build(look(0.0, capabilities=host), accused, ResponseSettings())
    assert [each.value for each in intents if isinstance(each, Setting)] == ([left] if left else [])


def test_cpus_are_read_only_for_a_rung_that_may_follow() -> None:
    tick = look(0.0, [verdict_on()])
    assert cgroup_reads(tick, ResponseSettings(max_strength=Strength.INVISIBLE)) == CgroupReads()
    assert cgroup_reads(tick, ResponseSettings(min_culprit_share=1.0)) == CgroupReads()
    no_cpuset = replace(tick.capabilities, knobs=tick.capabilities.knobs - {Knob.CPUSET_CPUS})
    assert cgroup_reads(replace(tick, capabilities=no_cpuset), ResponseSettings()) == CgroupReads()


def test_cpus_are_parted_by_whole_cores() -> None:
    cores = {0: 0, 1: 1, 2: 0, 3: 1}
    capabilities = HostCapabilities(
        frozenset({Knob.CPUSET_CPUS}),
        cpus=(0, 1, 2, 3),
        cores=cores,
        cgroup_cpus={WEB: frozenset({0}), HOG: frozenset()},
    )
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=capabilities))) == [
        (HOG, Knob.CPUSET_CPUS, "1,3")
    ]
    free = HostCapabilities(frozenset({Knob.CPUSET_CPUS}), cpus=(0, 1, 2, 3), cores=cores)
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=free))) == [
        (HOG, Knob.CPUSET_CPUS, "1,3")
    ]


@given(
    mask=st.integers(1, 20).map(lambda bits: (1 << bits) - 1),
    least=st.integers(1, 2),
    percent=st.sampled_from([10, 20, 50]),
)
def test_cache_masks_are_contiguous_and_never_empty(mask: int, least: int, percent: int) -> None:
    text = schemata(CacheCapabilities((0, 1), mask, least, (0,), 10, 10), percent)
    given_mask = int(text.splitlines()[0].partition("0=")[2].partition(";")[0], 16)
    assert given_mask & (given_mask + (given_mask & -given_mask)) == 0
    assert given_mask.bit_count() >= min(least, 1)
    assert "MB:0=" in text


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans(), st.floats(0, 2)), min_size=1, max_size=80))
def test_whatever_happens_only_the_culprit_or_its_branch_is_touched_and_limits_have_floors(
    ticks: list[tuple[float, bool, float]],
) -> None:
    response = ResponsePolicy()
    for second, (lost, named, used) in enumerate(ticks):
        for intent in response.step(look(float(second), [verdict_on()] if named else [], lost=lost, used=used)):
            assert intent.target in {"/batch", HOG}
            if isinstance(intent, Setting) and intent.knob is Knob.CPU_MAX:
                assert int(intent.value.split()[0]) >= 20_000
            if isinstance(intent, Setting) and intent.knob is Knob.IO_MAX:
                assert "=0" not in intent.value


def test_every_ladder_goes_from_gentle_to_drastic() -> None:
    for rungs in LADDERS.values():
        strengths = [rung.strength for rung in rungs]
        assert strengths == sorted(strengths)
