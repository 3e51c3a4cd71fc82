"""Losses of services in clean runs, from a recording: in the ticks of the run, and not those of best-effort work."""

from pathlib import Path

from bench.detect.kept import KeptRun
from bench.detect.losses import as_table, tick_losses
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.detection import Detection
from koordlet.agent.recorder import Recorder
from koordlet.config import RecordingSettings
from tests.frames import make_frame

PATHS = {1: "/top", 2: "/top/victim", 3: "/top/be-batch"}
BEGAN = 1.7e9


def recorded(directory: Path) -> Path:
    """A service that waits 20 ms in each second, 40 ms in one, and far more before and after; batch waits all along."""
    judging = Detection(Judge(JudgeSettings()), Recorder(RecordingSettings(directory=str(directory)), {}))
    waited = 0
    for second in range(60):
        waited += 40_000_000 if second == 33 else 20_000_000 if 20 < second <= 40 else 300_000_000
        columns = {"cpu.wait_neighbour_ns": [0, waited, second * 900_000_000], "cpu.oncpu_ns": [0, second * 10**8, 0]}
        judging.step(make_frame(second, PATHS, columns, {(2, 3): waited, (3, 2): second * 900_000_000}))
    judging.close()
    return directory


def run(scenario: str, span: tuple[float, float], *, clean: bool = True) -> KeptRun:
    paths = {"victim": "/top/victim", "be-batch": "/top/be-batch"}
    return KeptRun(scenario, clean, 0.0, [], {}, [], [], span, paths)


def test_the_greatest_tick_and_the_95th_percentile_of_clean_runs(tmp_path: Path) -> None:
    runs = [run("alone", (BEGAN + 20.5, BEGAN + 40.5)), run("harm", (BEGAN, BEGAN + 60), clean=False)]
    lost = tick_losses(runs, recorded(tmp_path), print)
    assert {each.scenario for each in lost} == {"alone"}
    (line,) = (each for each in as_table(lost).splitlines() if each.startswith("| `cpu-contention` |"))
    assert line == "| `cpu-contention` | `alone` | 0.021 | 0.040 | 0.05 |"


def test_the_scenario_with_the_greatest_loss_is_named(tmp_path: Path) -> None:
    runs = [run("calm", (BEGAN + 20.5, BEGAN + 30.5)), run("worse", (BEGAN + 30.5, BEGAN + 40.5))]
    assert "| `worse` |" in as_table(tick_losses(runs, recorded(tmp_path), print))


def test_symptoms_without_any_loss_have_no_row(tmp_path: Path) -> None:
    table = as_table(tick_losses([run("alone", (BEGAN + 20.5, BEGAN + 40.5))], recorded(tmp_path), print))
    assert len(table.splitlines()) == 3
