"""The steered limit on block IO: how it follows the victim's loss, and how it ends."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Intent, Knob, Setting, Strength
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import StepKind
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.response.ticks import HOG, WEB, look, verdict_on

MIB = 1 << 20
CAPABILITIES = HostCapabilities(frozenset({Knob.IO_MAX}), disks=("8:0", "7:1"))
SERVICE = 0.03
MAY_LOSE = SERVICE * ResponseSettings().io_slowdown
USED = 1e8


def disk(now: float, *, lost: float, used: float, named: bool) -> Observation:
    """The victim's IO takes 30 ms a second undisturbed; the hog moves `used` bytes a second."""
    seen = look(
        now, [verdict_on(resource="blockio")] if named else [], lost=lost, used=used / 1e8, capabilities=CAPABILITIES
    )
    return replace(seen, io_service=np.array([SERVICE if info.path == WEB else 0.0 for info in seen.cgroups]))


def limit_of(wanted: list[Intent]) -> float:
    """The one limit that is wanted, the same for each disk and direction; infinite without any."""
    texts = [(intent.target, intent.knob, intent.value) for intent in wanted if isinstance(intent, Setting)]
    if not texts:
        return float("inf")
    ((target, knob, text),) = texts
    assert (target, knob) == (HOG, Knob.IO_MAX)
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines] == ["8:0", "7:1"]
    (limit,) = {word.partition("=")[2] for line in lines for word in line[1:]}
    return float(limit)


def played(response: ResponsePolicy, edge: float, seconds: range, named: bool = True) -> list[float]:
    """Limits over time on a disk where the victim loses what it may when the hog moves `edge` bytes a second."""
    limits = []
    limit = float("inf")
    for second in seconds:
        used = min(USED, limit)
        lost = MAY_LOSE * (used / edge) ** 2
        limit = limit_of(response.step(disk(float(second), lost=lost, used=used, named=named and lost > 0.1)))
        limits.append(limit)
    return limits


@pytest.mark.parametrize("edge", [1.5e6, 2e6, 5e6, 1e7])
def test_the_limit_finds_the_edge_and_stays(edge: float) -> None:
    limits = played(ResponsePolicy(), edge, range(30))
    assert max(limits[:3]) < USED / 2
    assert max(limits[10:]) < 1.5 * edge
    assert min(limits[10:]) > 0.5 * edge


def test_a_held_limit_is_not_taken_for_quiet_and_outlasts_the_verdicts_while_the_culprit_presses() -> None:
    response = ResponsePolicy()
    played(response, 2e6, range(120))
    assert response.active_rungs == {(HOG, "blockio"): ("limit",)}


def test_a_culprit_that_stops_is_free_within_ten_seconds() -> None:
    response = ResponsePolicy()
    played(response, 2e6, range(30))
    for second in range(30, 40):
        response.step(disk(float(second), lost=0.0, used=0.0, named=False))
    assert response.active_rungs == {}


def test_one_that_presses_no_more_is_given_back_step_by_step_and_then_let_go() -> None:
    response = ResponsePolicy()
    played(response, 2e6, range(30))
    limits = [1e6]
    second = 30
    while response.active_rungs:
        used = min(8e6, limits[-1])
        limits.append(limit_of(response.step(disk(float(second), lost=0.0, used=used, named=False))))
        second += 1
        assert second < 90
    assert limits == sorted(limits)
    assert limits[-1] == float("inf")
    assert len(set(limits)) > 5
    assert limits[-2] > USED * 0.9


def test_a_release_that_hurts_ends_in_a_second_and_is_tried_later_each_time() -> None:
    response = ResponsePolicy()
    edge = 2e6
    limits = played(response, edge, range(300))
    tries = [second for second in range(20, 300) if limits[second] > 2 * edge >= limits[second - 1]]
    painful = sum(limit > 2 * edge for limit in limits[20:])
    assert 2 <= len(tries) <= 6
    assert painful <= 3 * len(tries)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries) if later - earlier > 5]
    assert gaps == sorted(gaps)
    assert response.active_rungs == {(HOG, "blockio"): ("limit",)}


def test_a_limit_on_the_floor_that_does_not_help_is_taken_back() -> None:
    response = ResponsePolicy()
    steps = []
    limit = float("inf")
    for second in range(16):
        limit = limit_of(response.step(disk(float(second), lost=0.5, used=min(USED, limit), named=True)))
        steps += [(step.kind, step.rung) for step in response.steps]
    assert steps == [(StepKind.APPLIED, "limit"), (StepKind.LIFTED, "limit"), (StepKind.REVERTED, "limit")]


def test_nothing_stronger_is_tried_while_the_limit_can_be_lowered() -> None:
    response = ResponsePolicy(ResponseSettings(max_strength=Strength.DRASTIC))
    for second in range(9):
        seen = disk(float(second), lost=1.0 if second == 0 else 0.03, used=USED, named=True)
        response.step(replace(seen, io_service=np.full(len(seen.cgroups), 0.56)))
    assert response.active_rungs == {(HOG, "blockio"): ("limit",)}


@pytest.mark.parametrize(
    ("weighing", "first"),
    [
        pytest.param(frozenset({"7:1"}), Knob.IO_WEIGHT, id="heeds"),
        pytest.param(None, Knob.IO_WEIGHT, id="unknown"),  # not known
        pytest.param(frozenset({"9:9"}), Knob.IO_MAX, id="another-disk-heeds"),
        pytest.param(frozenset(), Knob.IO_MAX, id="none-heeds"),
    ],
)
def test_a_weight_is_tried_where_a_disk_heeds_it(weighing: frozenset[str] | None, first: Knob) -> None:
    capabilities = replace(CAPABILITIES, knobs=frozenset({Knob.IO_WEIGHT, Knob.IO_MAX}), weighing_disks=weighing)
    (wanted,) = ResponsePolicy().step(replace(disk(0.0, lost=0.5, used=USED, named=True), capabilities=capabilities))
    assert isinstance(wanted, Setting)
    assert wanted.knob == first


def test_a_small_culprit_is_not_limited() -> None:
    assert ResponsePolicy().step(disk(0.0, lost=0.5, used=0.5 * MIB, named=True)) == []


def test_every_step_reaches_the_kernel_and_the_last_one_puts_it_back(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 1)
    for path in ("/batch", HOG, "/online", WEB):
        host.make(path)
    rule = host.file(HOG, "blkio.throttle.read_bps_device")
    response, enforcer = ResponsePolicy(), host.enforcer()
    capabilities = replace(CAPABILITIES, disks=("8:0",))
    seen = []
    used = USED
    for second in range(25):
        lost = MAY_LOSE * (used / 2e6) ** 2 if second < 15 else 0.0
        observation = disk(float(second), lost=lost, used=used if second < 15 else 0.0, named=lost > 0.1)
        enforcer.step(
            response.step(replace(observation, capabilities=capabilities)), observation.cgroups, host.later(1)
        )
        limit = int(rule.read_text().split()[1])
        seen.append(limit)
        used = min(USED, limit or USED)
    assert seen[0] > seen[1]
    assert len({limit for limit in seen if limit}) >= 4
    assert seen[-1] == 0  # no limit, as cgroup v1 says it
    assert 0 not in seen[:15]


@pytest.mark.parametrize(
    ("worked", "expected"),
    [
        pytest.param(8.0, 60 / 500, id="always-busy"),  # sixteen deep, each some 16 ms: one ends each 2 ms
        pytest.param(0.1, 60 * 0.1 / 500, id="busy-at-times"),
    ],
)
def test_what_the_disk_has_begun_is_one_io_of_the_culprits(worked: float, expected: float) -> None:
    seen = disk(0.0, lost=0.1, used=USED, named=True)
    rates = {WEB: (60.0, SERVICE), HOG: (500.0, worked)}
    ios, service = (np.array([rates.get(info.path, (0.0, 0.0))[place] for info in seen.cgroups]) for place in (0, 1))
    assert replace(seen, ios=ios, io_service=service).io_seconds_behind_one(WEB, HOG) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1e9), st.booleans()), min_size=1, max_size=80))
def test_no_limit_is_ever_below_the_floor(ticks: list[tuple[float, float, bool]]) -> None:
    response = ResponsePolicy()
    for second, (lost, used, named) in enumerate(ticks):
        assert limit_of(response.step(disk(float(second), lost=lost, used=used, named=named))) >= MIB


WEIGHING = replace(
    CAPABILITIES, knobs=frozenset({Knob.IO_WEIGHT, Knob.IO_MAX}), weighing_disks=frozenset(CAPABILITIES.disks)
)


def steps_of(losses: list[float]) -> list[tuple[StepKind, str]]:
    """Steps of ticks in which the victim loses so much, on a disk that heeds weights."""
    response, steps = ResponsePolicy(), []
    for second, lost in enumerate(losses):
        seen = disk(float(second), lost=lost, used=USED, named=second >= 2)
        response.step(replace(seen, capabilities=WEIGHING, lost={"blockio": seen.lost["blockio"]}))
        steps += [(step.kind, step.rung) for step in response.steps]
    return steps


def test_a_weight_is_not_judged_by_ticks_in_which_the_loss_only_began() -> None:
    """They lost less than those with the weight, by which the loss fell to a tenth."""
    began = [0.0, 0.1, 0.3]
    lifted = [4.0, 4.0]
    assert steps_of([*began, *[0.4] * 4, *lifted, 0.4]) == [
        (StepKind.APPLIED, "weight"),
        (StepKind.LIFTED, "weight"),
        (StepKind.KEPT, "weight"),
    ]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([4.0, 4.0, 4.0], id="steady"),
        pytest.param([4.0, 0.0, 4.0], id="a-tick-without"),
        pytest.param([3.0, 9.0, 2.0], id="swings"),
    ],
)
def test_a_weight_that_does_not_lower_a_loss_gives_way_to_the_limit(before: list[float]) -> None:
    """Whether the loss is steady, or comes and goes."""
    assert steps_of([*before, 9.0, 9.0, 9.0, 9.0]) == [
        (StepKind.APPLIED, "weight"),
        (StepKind.REVERTED, "weight"),
        (StepKind.APPLIED, "limit"),
    ]


@pytest.mark.parametrize(("left", "limited"), [(1.5 * SERVICE, False), (3.0 * SERVICE, True)])
def test_a_limit_joins_a_weight_only_where_io_still_waits_for_much_longer_than_it_takes(
    left: float, limited: bool
) -> None:
    steps = steps_of([4.0, 4.0, 4.0, *[left] * 20])
    assert steps[:2] == [(StepKind.APPLIED, "weight"), (StepKind.KEPT, "weight")]
    assert ((StepKind.APPLIED, "limit") in steps) == limited
