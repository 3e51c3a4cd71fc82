"""The trial: a model that knows more than the loss wins against a threshold, one that does not gains nothing."""

import numpy as np
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.fit import FitPolicy, fit_workload
from detector.models.format import SCHEMA, ModelFile
from detector.models.trial import LOSS, MIN_ROWS, Ordinary, Trial, trial

KEY = WorkloadKey("Deployment/shop/web")
FEATURES = ("cpu_cores", LOSS)
LOSS_PLACE = 1


def rows(count: int, seed: int, *, follows_load: bool) -> np.ndarray:
    draw = np.random.default_rng(seed)
    load = 0.6 + 0.4 * np.sin(2 * np.pi * np.arange(count) / 40) * draw.uniform(0.9, 1.0, count)
    usual = 0.045 * load**2 if follows_load else draw.uniform(0.001, 0.045, count)
    return np.stack([load, usual * draw.lognormal(0, 0.05, count)], axis=1)


def made(train: np.ndarray) -> ModelFile:
    model = fit_workload(KEY, train, None, FitPolicy(min_samples=100))
    assert model is not None
    return ModelFile(SCHEMA, FEATURES, 0.0, (model,))


def tried(file: ModelFile, values: np.ndarray) -> Trial | None:
    """Return the trial on the rows of one container, ten seconds apart."""
    return trial(file, KEY, Ordinary(values, 10.0 * np.arange(len(values)), np.zeros(len(values))))


def test_a_model_gains_where_the_ordinary_loss_follows_the_load() -> None:
    file = made(rows(800, 1, follows_load=True))
    found = tried(file, rows(400, 2, follows_load=True))
    assert found is not None
    assert found.gain > 0.1
    assert found.recall > 0.8
    assert found.false_alarms < 0.05
    assert found == tried(file, rows(400, 2, follows_load=True)), "equal rows give equal trials"


def test_it_gains_little_where_the_loss_says_all() -> None:
    file = made(rows(800, 1, follows_load=False))
    found = tried(file, rows(400, 2, follows_load=False))
    assert found is not None
    assert found.gain < 0.15


def test_too_few_or_unmeasured_rows_say_nothing() -> None:
    file = made(rows(300, 1, follows_load=True))
    assert tried(file, rows(MIN_ROWS - 1, 2, follows_load=True)) is None
    assert tried(file, np.full((200, 2), np.nan)) is None
    assert tried(file, np.full((200, 2), 1.0)) is None, "all above the rule's own threshold"
    assert tried(ModelFile(SCHEMA, ("cpu_cores", "cpi"), 0.0, file.models), rows(200, 2, follows_load=True)) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_suspects_everything_gains_nothing_over_a_threshold(seed: int) -> None:
    import msgspec

    file = made(rows(300, 1, follows_load=True))
    always = msgspec.structs.replace(file, models=(msgspec.structs.replace(file.models[0], threshold=1e9),))
    found = tried(always, rows(400, seed, follows_load=True))
    assert found is not None
    assert found.false_alarms > 0.2
    assert found.gain <= 0.02


def test_false_verdicts_count_by_number_and_by_time() -> None:
    file = made(rows(800, 1, follows_load=True))
    values = np.tile([0.3, 0.002], (400, 1))
    values[100:200] = [0.9, 0.034]
    values[300::8, LOSS_PLACE] = 0.027  # much at this load; thresholds want two of three ticks
    found = tried(file, values)
    assert found is not None
    assert found.false_alarms < 0.05
    assert found.false_verdicts > 10
    assert found.recall > 0.9
    assert found.gain <= 0.0, "lower thresholds make one false verdict, when load is high"


def test_cgroups_are_followed_each_for_itself() -> None:
    file = made(rows(800, 1, follows_load=True))
    values = np.tile([0.3, 0.002], (200, 1))
    values[50:60, LOSS_PLACE] = 0.027
    times = 10.0 * np.arange(200)
    one = trial(file, KEY, Ordinary(values, times, np.zeros(200)))
    two = trial(file, KEY, Ordinary(values, times // 20 * 20, np.arange(200) % 2.0))
    assert one is not None and two is not None
    assert (one.false_verdicts, two.false_verdicts) == (1, 2)
    assert one.under_false_verdicts == two.under_false_verdicts == 0.05
