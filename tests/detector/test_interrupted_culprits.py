"""Blame for waits while interrupts ran on top of the culprit."""

from collections.abc import Mapping

import pytest

from api.frame import KERNEL_ID
from api.verdicts import KERNEL, VerdictState
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings, judged_columns
from detector.view import CPU_BLAME, View
from tests.detector.made_frames import BATCH, WEB, Tick, frames

MS = 10**6
WAITED = {"cpu.wait_neighbour_ns": {1: 500 * MS}, "cpu.held_ns": {1: 300 * MS, 2: 1000 * MS}}


def tick(**taken: float) -> Tick:
    """/web waits half a second behind /batch, which runs for one with such columns in milliseconds."""
    columns: dict[str, Mapping[int, float]] = dict(WAITED)
    for name, milliseconds in taken.items():
        columns[name.replace("__", ".")] = {2: milliseconds * MS}
    return Tick(columns, {(1, 2): 0.5})


@pytest.mark.parametrize(
    ("taken", "kernels"),
    [
        pytest.param({"cpu__irq_ns": 100, "cpu__softirq_ns": 300}, 0.2, id="others-packets"),
        pytest.param({"cpu__softirq_ns": 400, "net__softirq_own_ns": 300}, 0.05, id="mostly-its-own-packets"),
        pytest.param({"cpu__irq_ns": 30, "cpu__softirq_ns": 0}, 0.0, id="the-timer"),
        pytest.param({"cpu__softirq_ns": 1500}, 0.5, id="more-than-it-ran"),
        pytest.param({}, 0.0, id="not-measured"),
    ],
)
def test_the_kernel_has_the_part_in_which_interrupts_held_the_cpu(taken: Mapping[str, float], kernels: float) -> None:
    made = frames([tick(**taken)], (WEB, BATCH))
    blame = View(Window(made), judged_columns()).blame(CPU_BLAME)
    assert blame is not None
    found = dict(zip(blame.culprits.tolist(), blame.amounts.tolist(), strict=True))
    assert found == pytest.approx({who: part for who, part in ((2, 0.5 - kernels), (KERNEL_ID, kernels)) if part})


def test_older_recordings_have_the_time_by_the_clock_under_another_name() -> None:
    made = tick(cpu__softirq_ns=400)
    older = {name.replace("held", "oncpu"): column for name, column in made.columns.items()}
    blame = View(Window(frames([Tick(older, made.blame)], (WEB, BATCH))), judged_columns()).blame(CPU_BLAME)
    assert blame is not None
    assert dict(zip(blame.culprits.tolist(), blame.amounts.tolist(), strict=True)) == pytest.approx(
        {2: 0.3, KERNEL_ID: 0.2}
    )


def test_a_flood_of_packets_on_top_of_a_busy_neighbour_is_not_its_doing() -> None:
    judge = Judge(JudgeSettings())
    told = [v for frame in frames([tick(cpu__softirq_ns=700)] * 3, (WEB, BATCH)) for v in judge.step(frame)]
    (verdict,) = [v for v in told if (v.state, v.rule) == (VerdictState.OPEN, "cpu-contention")]
    assert [(c.path, round(c.share, 2)) for c in verdict.culprits] == [(KERNEL, 0.7), ("/batch", 0.3)]
