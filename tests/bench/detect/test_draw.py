"""The picture is drawn for any runs, found or missed."""

from pathlib import Path

import pytest

from bench.detect.claims import Claim, Proof, Scenario
from bench.detect.draw import draw
from bench.detect.measures import Sample
from bench.detect.report import scored
from bench.detect.runner import Proven, Run
from detector.evaluation.scoring import Label


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_missed_label_is_drawn_too(tmp_path: Path, suffix: str) -> None:
    label = Label(victim="/victim", resource="cpu", culprit="/hog", start=1.0, end=2.0)
    scenario = Scenario("one", "", lambda _stage: None, (Claim("victim", "cpu", "contention", "hog"),))
    samples = (Sample(0.0, {}), Sample(1.0, {}))
    run = Run(
        scenario, (label,), (), 0, samples, {"victim": "/victim"}, (Proven(Proof("victim", "wait"), 1.0),), 3.0, 0.1
    )
    path = tmp_path / f"figures{suffix}"
    draw([scored(run)], path)
    assert path.stat().st_size > 1000
