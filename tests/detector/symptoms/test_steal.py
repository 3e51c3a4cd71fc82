"""Steal: the loss of one tick, and the words of a verdict."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import HOST, Frame, Table
from api.verdict_text import in_words
from api.verdicts import HYPERVISOR, Verdict, VerdictState
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from detector.symptoms.steal import Steal
from detector.view import View
from tests.detector.made_frames import BATCH, WEB, Tick, frames

SECOND = 10**9


def with_steal(made: list[Frame], busy: float, stolen: float) -> list[Frame]:
    """All CPUs together work and are stolen for so many seconds a second."""
    return [
        replace(
            frame,
            tables={
                **frame.tables,
                HOST: Table(
                    {},
                    {
                        "hostwide.busy_ns": np.array([int(number * busy * SECOND)], dtype=np.uint64),
                        "hostwide.steal_ns": np.array([int(number * stolen * SECOND)], dtype=np.uint64),
                    },
                ),
            },
        )
        for number, frame in enumerate(made)
    ]


def used(cpus: float, ticks: int = 1) -> list[Frame]:
    return frames([Tick({"cpu.oncpu_ns": {1: cpus * SECOND, 2: 0.0}})] * ticks, (WEB, BATCH))


@pytest.mark.parametrize(
    ("busy", "stolen", "lost"),
    [
        pytest.param(3.0, 1.0, 2 / 3, id="a-second-stolen-for-three-of-work"),
        pytest.param(3.0, 0.0, 0.0, id="nothing-was-stolen"),
        pytest.param(0.0, 0.0, 0.0, id="idle"),
    ],
)
def test_each_cgroup_loses_by_its_cpu_time(busy: float, stolen: float, lost: float) -> None:
    signal = Steal().sense(View(Window(with_steal(used(2.0), busy, stolen)), Steal.columns))
    assert signal is not None
    assert signal.lost.tolist() == pytest.approx([lost, 0.0])


def test_a_host_that_does_not_say_is_not_judged() -> None:
    assert Steal().sense(View(Window(used(2.0)), Steal.columns)) is None


def opened(made: list[Frame]) -> list[Verdict]:
    judge = Judge(JudgeSettings())
    return [v for frame in made for v in judge.step(frame) if v.state is VerdictState.OPEN]


def test_a_verdict_names_the_hypervisor_and_no_neighbour() -> None:
    (verdict,) = opened(with_steal(used(1.0, ticks=4), busy=1.5, stolen=0.5))
    assert (verdict.victim, verdict.rule, verdict.confidence) == ("/web", "steal", 0.0)
    assert [culprit.path for culprit in verdict.culprits] == [HYPERVISOR]
    assert in_words(verdict) == "web lost 0.33 s/s on CPUs that did not run: 0.33 to the hypervisor"


def test_what_every_virtual_machine_loses_is_no_verdict() -> None:
    assert opened(with_steal(used(8.0, ticks=10), busy=8.0, stolen=0.4)) == []
