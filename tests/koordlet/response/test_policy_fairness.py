"""What the response owes others: entitlement, bystanders, held locks, refusals, dry runs, starved culprits."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from api.intents import Intent, Knob, Setting
from api.verdicts import Culprit, How, Verdict
from koordlet.response.policy import Refusal, ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import Refused, StepKind
from tests.koordlet.response.ticks import (
    BYSTANDER,
    CLASSES,
    HOG,
    WEB,
    WEIGHTS,
    knobs,
    look,
    tick,
    verdict_on,
)
from tests.verdicts import make_verdict


def test_a_hundred_spinning_threads_quiet_nobody() -> None:
    """They use their share by weight and by the request of their pod: best-effort work may have to yield to them, as
    it does below the kubelet's BestEffort directory, but no limit takes time from it."""
    for weights in (WEIGHTS, {"/online": 100.0, "/batch": 100.0}):
        share = 4 * weights["/online"] / (weights["/online"] + weights["/batch"])
        response = ResponsePolicy()
        for second in range(30):
            seen = tick(
                float(second),
                used={WEB: share, HOG: 4 - share},
                waits={WEB: 100 - share, HOG: 8.0},
                lost={HOG: 60.0},
                weights=weights,
            )
            seen = replace(seen, request_cores=np.full(len(seen.cgroups), 0.1))
            wanted = [*response.step(seen), *response.trip(seen, HOG, WEB, resource="cpu", lost=60.0)]
            assert {knob for _path, knob, _value in knobs(wanted)} <= ({Knob.CPU_IDLE} if share < 3 else set())


def test_a_service_that_needs_more_than_half_is_heard_beside_best_effort_work_of_equal_weight() -> None:
    seen = tick(
        0.0,
        used={WEB: 2.5, HOG: 1.5},
        waits={WEB: 0.7, HOG: 3.0},
        lost={HOG: 0.7},
        weights={"/online": 100.0, "/batch": 100.0},
    )
    assert seen.claim(WEB, "cpu") == pytest.approx(0.7)
    assert seen.claim(WEB, "cpu", of_limits=True) == 0.0
    assert seen.share(HOG) == pytest.approx(2.0)  # what yields has its own share by its weight
    response = ResponsePolicy()
    assert knobs(response.step(seen)) == [("/batch", Knob.CPU_IDLE, "1")]


def test_a_service_below_its_share_is_heard() -> None:
    seen = tick(0.0, used={WEB: 0.3, HOG: 3.0}, waits={WEB: 0.4, HOG: 5.0}, lost={HOG: 0.4})
    assert seen.entitled(WEB) == pytest.approx(0.7)  # what its threads want
    assert seen.claim(WEB, "cpu") == pytest.approx(0.4)
    assert knobs(ResponsePolicy().step(seen)) == [("/batch", Knob.CPU_IDLE, "1")]


def test_limits_take_no_more_than_the_victim_is_entitled_to() -> None:
    """0.7 CPUs are the victim's: of the 15 that the hog uses it loses no more by any limit."""
    response = ResponsePolicy()
    quotas = []
    for second in range(30):
        seen = tick(
            float(second),
            used={WEB: 0.3, HOG: 15.0},
            waits={WEB: 0.4, HOG: 5.0},
            lost={HOG: 0.4},
            cpus=16,
            knobs=frozenset({Knob.CPU_MAX}),
        )
        quotas += [int(value.split()[0]) for _path, _knob, value in knobs(response.step(seen))]
    assert min(quotas) == pytest.approx(1_430_000, abs=1)


def test_one_that_moves_half_of_the_bytes_has_no_claim_on_a_disk() -> None:
    seen = look(0.0, lost=5.0, used=1.0)
    ids = {info.id: frozenset({"8:0"}) for info in seen.cgroups if info.path in (WEB, HOG)}
    flood = replace(seen, io_disks=ids)
    assert flood.claim(WEB, "blockio") == 0.0
    few = np.array([1e6 if info.path == WEB else 1e8 for info in seen.cgroups])
    assert replace(flood, io_bytes_per_second=few).claim(WEB, "blockio") == 5.0


def test_memory_beyond_the_request_gives_no_claim() -> None:
    seen = look(0.0, lost=0.5)
    assert seen.claim(WEB, "memory") == 0.5
    assert replace(seen, request_bytes=np.full(len(seen.cgroups), 5e8)).claim(WEB, "memory") == 0.0
    assert replace(seen, request_bytes=np.full(len(seen.cgroups), 2e9)).claim(WEB, "memory") == 0.5


def test_a_starved_culprit_is_not_a_quiet_one() -> None:
    """cpu.idle leaves 0.15 of 3 CPUs on a busy node: what it wants counts, not what it gets."""
    response = ResponsePolicy()
    loose, idle = 0, False
    for second in range(300):
        used = {WEB: 1.0, HOG: 0.15 if idle else 3.0}
        waits = {WEB: 0.0 if idle else 0.5, HOG: 3.85 if idle else 1.0}
        wanted = response.step(tick(float(second), used=used, waits=waits, lost={HOG: 0.01 if idle else 0.5}))
        idle = bool(wanted)
        loose += not idle and second > 0
    assert loose <= 3


def test_without_waits_only_one_that_does_nothing_at_all_is_quiet() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()], used=4.0))
    for second in range(1, 25):
        response.step(look(float(second), lost=0.0, used=0.15))
    assert response.active_rungs
    for second in range(25, 30):
        response.step(look(float(second), lost=0.0, used=0.0))
    assert not response.active_rungs


@pytest.mark.parametrize(
    ("progress", "other_lost"),
    [pytest.param(0.05, 0.0, id="inode-lock"), pytest.param(0.5, 0.8, id="journal-commit")],
)
def test_a_rung_on_a_holder_of_a_lock_is_taken_back_within_a_tick_and_ever_more_rarely_tried(
    progress: float, other_lost: float
) -> None:
    response = ResponsePolicy()
    steps = []
    held: list[Intent] = []
    for second in range(2400):
        hurts = bool(held)
        seen = tick(
            float(second),
            used={WEB: progress if hurts else 0.5, HOG: 3.0},
            waits={WEB: 0.0 if hurts else 0.4, HOG: 3.0},
            lost={HOG: 0.01 if hurts else 0.4 if second >= 5 else 0.0},
            other_lost=other_lost if hurts else 0.0,
            knobs=frozenset({Knob.CPU_MAX}),
        )
        held = response.step(seen)
        steps += [(second, step.kind, step.rung) for step in response.steps]
    begun = [second for second, kind, _rung in steps if kind is StepKind.APPLIED]
    ended = [second for second, kind, _rung in steps if kind is StepKind.REVERTED]
    assert [end - start for start, end in zip(begun, ended, strict=True)] == [1, 1, 1]
    assert begun[1] - begun[0] >= 30  # once may be chance
    assert begun[2] - begun[1] >= 900


def test_a_victim_that_merely_stopped_does_not_bar_the_rung() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(60):
        stopped = 6 <= second < 20
        lost = 0.0 if second < 5 or stopped or response.active_rungs else 0.4
        seen = tick(
            float(second),
            used={WEB: 0.0 if stopped else 0.5, HOG: 3.0},
            waits={WEB: 0.4, HOG: 3.0},
            lost={HOG: lost},
            knobs=frozenset({Knob.CPU_MAX}),
        )
        response.step(seen)
        steps += [step.kind for step in response.steps]
    assert steps[:3] == [StepKind.APPLIED, StepKind.REVERTED, StepKind.APPLIED]


def test_a_bystander_below_the_lever_that_loses_more_ends_the_rung() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(12):
        idle = any(intent.knob == Knob.CPU_IDLE for intent in _settings(response))
        seen = tick(
            float(second),
            used={WEB: 0.3, HOG: 2.0, BYSTANDER: 0.5},
            waits={WEB: 0.4, HOG: 2.0},
            lost={HOG: 0.01 if idle else 0.4},
            held_up={BYSTANDER: 0.3 if idle else 0.1},
        )
        response.step(seen)
        steps += [(second, step.kind, step.rung, step.reason) for step in response.steps]
    assert steps[0][:3] == (0, StepKind.APPLIED, "idle")
    assert steps[1] == (2, StepKind.REVERTED, "idle", "a bystander lost for it")
    assert steps[2][2] != "idle"


def _settings(response: ResponsePolicy) -> list[Setting]:
    return [intent for intent in response._intents() if isinstance(intent, Setting)]


def accused(*culprits: str, victim: str = WEB) -> Verdict:
    share = 1 / len(culprits)
    return make_verdict(
        victim,
        time=0.0,
        resource="cpu",
        lost=0.4,
        culprits=tuple(Culprit(path, share, How.DIRECT) for path in culprits),
        rule="cpu",
    )


def test_culprits_of_one_directory_are_limited_as_one() -> None:
    busy = {WEB: 0.3, HOG: 2.0, BYSTANDER: 1.0}
    seen = tick(
        0.0,
        used=busy,
        waits={WEB: 0.4, HOG: 2.0},
        lost={HOG: 0.2, BYSTANDER: 0.2},
        verdicts=[accused(HOG, BYSTANDER)],
        knobs=frozenset({Knob.CPU_MAX}),
    )
    response = ResponsePolicy()
    assert [path for path, _knob, _value in knobs(response.step(seen))] == ["/batch"]
    (rungs,) = response.active_rungs.items()
    assert rungs == (("/batch", "cpu"), ("quota",))


def test_one_that_costs_nothing_in_a_directory_that_a_verdict_names_ends_the_limit_that_it_loses_by() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(6):
        is_limited = bool(_settings(response))
        seen = tick(
            float(second),
            used={WEB: 0.3, HOG: 2.0, BYSTANDER: 1.0},
            waits={WEB: 0.4, HOG: 2.0},
            lost={HOG: 0.01 if is_limited else 0.4},
            verdicts=[accused("/batch")],
            knobs=frozenset({Knob.CPU_MAX}),
            held_up={BYSTANDER: 0.3 if is_limited else 0.0},
        )
        response.step(seen)
        steps += [(second, step.culprit, step.kind, step.rung) for step in response.steps]
    assert steps == [(0, "/batch", StepKind.APPLIED, "quota"), (2, "/batch", StepKind.REVERTED, "quota")]


def test_a_directory_in_which_another_is_busy_is_left_alone() -> None:
    seen = tick(
        0.0,
        used={WEB: 0.3, HOG: 2.0, f"{HOG}-2": 1.0, BYSTANDER: 1.0},
        waits={WEB: 0.4, HOG: 2.0},
        lost={HOG: 0.4},
        verdicts=[accused(HOG, "/elsewhere")],
        knobs=frozenset({Knob.CPU_MAX}),
    )
    assert [path for path, _knob, _value in knobs(ResponsePolicy().step(seen))] == [HOG]


def standing(response: ResponsePolicy, seconds: range, refused: Refused | None) -> list[tuple[int, StepKind, str]]:
    """Steps while the enforcer refuses all that is asked for, and nothing changes."""
    steps = []
    for second in seconds:
        wanted = response.step(tick(float(second), used={WEB: 0.3, HOG: 3.0}, waits={WEB: 0.4}, lost={HOG: 0.4}))
        steps += [(second, step.kind, step.rung) for step in response.steps]
        if refused is not None:
            asked = [Refusal(each.target, each.knob, refused) for each in wanted if isinstance(each, Setting)]
            response.note_refusals(asked, float(second))
    return steps


def test_what_is_refused_for_now_is_neither_judged_nor_climbed_over() -> None:
    response = ResponsePolicy()
    assert standing(response, range(30), Refused.FOR_NOW) == [(0, StepKind.APPLIED, "idle")]
    assert response.active_rungs == {}
    steps = standing(response, range(30, 38), None)  # its trial begins when it is set
    assert [(kind, rung) for _second, kind, rung in steps[:2]] == [
        (StepKind.REVERTED, "idle"),
        (StepKind.APPLIED, "cpuset"),
    ]
    assert steps[0][0] >= 34


def test_a_rung_that_cannot_be_set_gives_way_to_the_next_and_a_refused_culprit_is_left_alone() -> None:
    steps = standing(ResponsePolicy(), range(3), Refused.RUNG)
    assert [(kind, rung) for _second, kind, rung in steps][:3] == [
        (StepKind.APPLIED, "idle"),
        (StepKind.REFUSED, "idle"),
        (StepKind.APPLIED, "cpuset"),
    ]
    alone = standing(ResponsePolicy(), range(60), Refused.CULPRIT)
    assert [(kind, rung) for _second, kind, rung in alone] == [
        (StepKind.APPLIED, "idle"),
        (StepKind.REFUSED, "idle"),
    ]


def test_a_dry_run_shows_the_first_rung_and_climbs_over_nothing() -> None:
    response = ResponsePolicy(ResponseSettings(max_strength=3), is_dry_run=True)  # type: ignore[arg-type]
    steps = standing(response, range(120), None)
    assert steps == [(0, StepKind.APPLIED, "idle")]
    (wanted,) = _settings(response)
    assert "would end up to 0.40 s/s" in wanted.reason
    for second in range(120, 160):
        response.step(tick(float(second), used={WEB: 0.3, HOG: 3.0}, waits={}, lost={}))
    assert response.active_rungs == {}


def test_a_trip_after_a_calm_tick_is_answered() -> None:
    """What the service wanted before the culprit began is no bound of what it may claim now."""
    calm = tick(0.0, used={WEB: 0.3}, waits={WEB: 0.01}, lost={})
    wanted = ResponsePolicy().trip(calm, HOG, WEB, resource="cpu", lost=0.5)
    assert knobs(wanted) == [("/batch", Knob.CPU_IDLE, "1")]


@pytest.mark.parametrize("costs", [pytest.param(0.0, id="a-bystander"), pytest.param(0.3, id="a-further-culprit")])
def test_one_that_wakes_in_a_directory_limited_as_one_ends_the_limit_unless_it_is_a_culprit(costs: float) -> None:
    response = ResponsePolicy()
    idle = "/batch/idle"
    steps = []
    for second in range(12):
        wakes = second >= 6
        lost = {HOG: 0.2, BYSTANDER: 0.2} if second == 0 else {HOG: 0.01, idle: costs if wakes else 0.0}
        seen = tick(
            float(second),
            used={WEB: 0.3, HOG: 2.0, BYSTANDER: 1.0, idle: 0.1 if wakes else 0.0},
            waits={WEB: 0.4, HOG: 2.0},
            lost={path: amount for path, amount in lost.items() if amount > 0},
            verdicts=[accused(HOG, BYSTANDER)] if second < 3 else [],
            knobs=frozenset({Knob.CPU_MAX}),
            held_up={idle: 0.5 if wakes else 0.0, HOG: 1.0},
            classes={**CLASSES, idle: "BE"},
        )
        response.step(seen)
        steps += [(second, step.culprit, step.kind) for step in response.steps]
    assert steps[0] == (0, "/batch", StepKind.APPLIED)
    assert ((7, "/batch", StepKind.REVERTED) in steps) is (costs == 0)


def test_a_tick_is_let_go_without_a_collection() -> None:
    """Its columns are megabytes on a full node: a cycle of references would keep those of many ticks."""
    seen = tick(0.0, used={WEB: 0.3, HOG: 3.0}, waits={WEB: 0.4, HOG: 5.0}, lost={HOG: 0.4})
    assert seen.claim(WEB, "cpu") > 0
    there = weakref.ref(seen)
    gc.disable()
    try:
        del seen
        assert there() is None
    finally:
        gc.enable()


def test_what_a_hypervisor_steals_is_held_against_no_neighbour() -> None:
    """Two equals hold half of the CPUs each, and a third of what they hold is stolen."""
    equal = {WEB: 100.0, HOG: 100.0}
    seen = tick(0.0, used={WEB: 1.3, HOG: 1.3}, waits={WEB: 2.0, HOG: 2.0}, lost={HOG: 1.0}, weights=equal, classes={})
    assert seen.claim(WEB, "cpu", of_limits=True) == pytest.approx(0.7)
    held = replace(seen, held_cores=1.5385 * seen.cpu_cores)
    assert held.claim(WEB, "cpu", of_limits=True) == pytest.approx(0.0, abs=0.01)
    assert held.used_by(WEB) == pytest.approx(1.3)
