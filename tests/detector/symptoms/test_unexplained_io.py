"""Unexplained stalls on IO: what is left of the pressure of a tick, and the verdicts on it."""

from dataclasses import replace

import numpy as np
import pytest

from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from detector.symptoms.unexplained_io import UnexplainedIo
from detector.view import View
from tests.detector.symptoms.ticks import MS, lost, tick
from tests.frames import make_frame

PRESSURE, DEVICE = "pressure.io_some_us", "blockio.device_ns"


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        pytest.param({PRESSURE: 900_000, DEVICE: 0}, 0.9, id="network file system"),
        pytest.param({PRESSURE: 900_000, DEVICE: 950 * MS}, 0.0, id="own disk"),
        pytest.param({PRESSURE: 900_000, DEVICE: 300 * MS}, 0.6, id="both"),
        pytest.param({PRESSURE: 900_000, DEVICE: 0, "blockio.stalled_ns": 4000 * MS}, 0.0, id="hung disk"),
        pytest.param({PRESSURE: 900_000, DEVICE: 0, "blockio.throttle_ns": 1000 * MS}, 0.0, id="limit"),
        pytest.param({PRESSURE: 0, DEVICE: 100 * MS}, 0.0, id="asynchronous"),
    ],
)
def test_what_no_disk_explains_is_lost(grown: dict[str, float], expected: float) -> None:
    assert lost(UnexplainedIo(), grown) == pytest.approx(expected)


def test_without_the_probe_or_without_pressure_nothing_is_left_over() -> None:
    assert UnexplainedIo().sense(tick(UnexplainedIo(), {PRESSURE: 900_000})) is None
    assert UnexplainedIo().sense(tick(UnexplainedIo(), {DEVICE: 900 * MS})) is None


def test_parents_are_not_judged_and_io_of_the_roots_tasks_explains_no_others_wait() -> None:
    paths = {1: "/", 2: "/pod", 3: "/pod/a"}
    columns = {PRESSURE: [900_000, 900_000, 900_000], DEVICE: [5000 * MS, 0, 0]}
    frames = [make_frame(t, paths, {name: [each * t for each in row] for name, row in columns.items()}) for t in (0, 1)]
    signal = UnexplainedIo().sense(View(Window(frames), UnexplainedIo.columns))
    assert signal is not None
    np.testing.assert_allclose(signal.lost, [np.nan, np.nan, 0.9])


WORKLOADS = {"/jobs/a": "jobs", "/jobs/b": "jobs", "/jobs/c": "jobs", "/web": "web", "/other": "", "/more": ""}


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        pytest.param({}, [1.0] * 6, id="a network file system hangs"),
        pytest.param({DEVICE: [1200 * MS, 0, 0, 0, 0, 0]}, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], id="one reads for all"),
        pytest.param(
            {"cpu.wait_neighbour_ns": [0, 1500 * MS, 900 * MS, 0, 0, 0]},
            [0.05, 0.55, 0.5, 1.0, 1.0, 1.0],
            id="others wait for a CPU",
        ),
        pytest.param({DEVICE: [0, 0, 0, 900 * MS, 0, 900 * MS]}, [1.0, 1.0, 1.0, 0.1, 1.0, 0.1], id="others read"),
    ],
)
def test_replicas_explain_what_they_hold_up(grown: dict[str, list[float]], expected: list[float]) -> None:
    columns = {PRESSURE: [1_000_000.0] * 6, DEVICE: [0.0] * 6} | grown
    paths = dict(enumerate(WORKLOADS, start=1))
    frames = [make_frame(t, paths, {name: [each * t for each in row] for name, row in columns.items()}) for t in (0, 1)]
    named = [
        replace(frame, cgroups=tuple(replace(each, workload=WORKLOADS[each.path]) for each in frame.cgroups))
        for frame in frames
    ]
    signal = UnexplainedIo().sense(View(Window(named), UnexplainedIo.columns))
    assert signal is not None
    np.testing.assert_allclose(signal.lost, expected)


def told(stalled_us: list[float], device_ns: list[float]) -> list[str]:
    """Verdict lines of /web, whose stalls and IO grow so in each second."""
    judge, said = Judge(JudgeSettings()), []
    sums = np.cumsum([[0.0, *stalled_us], [0.0, *device_ns]], axis=1)
    for second, (stalled, device) in enumerate(sums.T.tolist()):
        frame = make_frame(second, {1: "/web"}, {PRESSURE: [stalled], DEVICE: [device], "cpu.wait_neighbour_ns": [0]})
        said += [
            f"{second} {each.rule} {each.cause} {each.state} {len(each.culprits)} {each.confidence:g}"
            for each in judge.step(frame)
        ]
    return said


def test_a_planted_hang_is_told_in_three_ticks_and_blames_nothing() -> None:
    assert told([0.0] * 5 + [1e6] * 5, [0.0] * 10) == ["8 unexplained-io io open 0 0"]


def test_a_slow_disk_that_answers_each_second_tick_is_explained() -> None:
    assert told([1e6] * 20, [0.0, 1.5e9] * 10) == []
