"""Limits follow the losses that are felt, and are no reason to wait where they are not used up."""

from dataclasses import replace

import pytest

from api.intents import Intent, Knob, Setting
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import StepKind
from tests.koordlet.response.ticks import HOG, WEB, tick, verdict_on

LIMITS = frozenset({Knob.CPU_MAX})


def quota_of(wanted: list[Intent]) -> float:
    (setting,) = [each for each in wanted if isinstance(each, Setting)]
    return int(setting.value.split()[0]) / 100_000


@pytest.mark.parametrize("slowdown", [0.5, 0.0])
def test_a_limit_falls_only_while_its_victim_feels_the_loss(slowdown: float) -> None:
    """From its second tick on requests take as long as usual, or half as long again."""
    response = ResponsePolicy()
    quotas = []
    for second in range(4):
        used, waits = {WEB: 0.5, HOG: 10.0}, {WEB: 7.5, HOG: 5.0}
        seen = tick(float(second), used=used, waits=waits, lost={HOG: 0.4}, knobs=LIMITS, cpus=16)
        slower = seen.cpu_cores * 0 + (0.5 if second == 0 else slowdown)
        quotas.append(quota_of(response.step(replace(seen, slowdown=slower))))
    assert quotas[:2] == [5.0, 2.5]  # the median of two ticks still says so
    assert (quotas[3] < quotas[1]) is (slowdown > 0)


def test_a_limit_that_is_not_used_up_does_not_keep_the_next_rung_waiting() -> None:
    response = ResponsePolicy(ResponseSettings(max_strength=3))  # type: ignore[arg-type]
    other = "/online/shop"
    classes = {"/online": "", WEB: "LS", other: "LS", "/batch": "", HOG: "BE"}
    steps = []
    for second in range(40):
        seen = tick(
            float(second),
            used={WEB: 0.5, other: 0.5, HOG: 3.0 if second == 0 else 0.2},
            waits={WEB: 1.5, other: 1.5, HOG: 5.0},
            lost={HOG: 0.4},
            verdicts=[verdict_on(), verdict_on(victim=other)],
            knobs=LIMITS | {Knob.FREEZE},
            classes=classes,
        )
        seen = replace(seen, blame_of=lambda _resource: None, lost={"cpu": seen.cpu_cores * 0 + 0.4})
        response.step(seen)
        steps += [(step.rung, step.kind) for step in response.steps]
    assert ("quota", StepKind.APPLIED) in steps
    assert ("freeze", StepKind.APPLIED) in steps
