"""Models by name: made by the first sample, forgotten in time, their rows used again."""

import math

import numpy as np
import pytest

from detector.histograms import StoredHistogram
from koordlet.prediction.models import SAVED_PER_STEP, Peak, PeakModels, StoredModel

NOW = 1_700_000_000.0


def train(models: PeakModels, at: float = NOW, **cores: float) -> None:
    models.train(list(cores), np.array(list(cores.values())), np.full(len(cores), 1e9), at)


def test_peaks_are_those_of_cpu_and_memory() -> None:
    models = PeakModels()
    train(models, web=0.5, batch=2.0)
    assert models.peaks(["web", "batch", "unknown"]) == {
        "web": Peak(539, 1040327180),
        "batch": Peak(2001, 1040327180),
    }


def test_a_pod_whose_usage_was_not_measured_has_no_model_and_half_a_model_no_peak() -> None:
    models = PeakModels()
    models.train(["no", "half"], np.array([math.nan, 1.0]), np.array([math.nan, math.nan]), NOW)
    assert "no" not in models
    assert models.peaks(["half"]) == {}


def test_a_model_is_forgotten_and_its_row_starts_empty_for_the_next() -> None:
    models = PeakModels()
    train(models, old=8.0, kept=1.0)
    train(models, at=NOW + 60, kept=1.0)
    assert models.expire(NOW + 30, NOW + 30, ["old", "kept"]) == ["old"]
    train(models, at=NOW + 60, new=0.5)
    assert models.peaks(["new"])["new"].cpu_millicores == 539
    assert len(models) == 2


def test_a_pod_that_is_gone_is_forgotten_before_one_that_is_not_measured() -> None:
    models = PeakModels()
    train(models, gone=8.0, here=1.0)
    assert models.expire(NOW - 1500, NOW + 1, ["here"]) == ["gone"]
    assert "here" in models


def test_checkpoints_are_made_oldest_first_a_few_at_a_time() -> None:
    models = PeakModels()
    names = [f"pod-{number}" for number in range(30)]
    train(models, **dict.fromkeys(names, 1.0))
    saved = [len(models.to_save(NOW - 600, NOW + step)) for step in range(4)]
    assert saved == [SAVED_PER_STEP, SAVED_PER_STEP, 30 - 2 * SAVED_PER_STEP, 0]
    train(models, at=NOW + 700, **dict.fromkeys(names, 1.0))
    assert {model.name for model in models.to_save(NOW + 100, NOW + 700)} <= set(names)


def test_a_model_comes_back_from_its_checkpoint() -> None:
    models, again = PeakModels(), PeakModels()
    train(models, web=0.5)
    (stored,) = models.to_save(NOW, NOW)
    again.load(stored, NOW + 60)
    assert again.peaks(["web"]) == models.peaks(["web"])


def test_a_checkpoint_that_does_not_fit_leaves_no_model() -> None:
    models = PeakModels()
    bad = StoredHistogram(NOW, {9999: 1}, 1.0)
    with pytest.raises(ValueError, match="weights"):
        models.load(StoredModel("web", NOW, bad, bad), NOW)
    assert "web" not in models
