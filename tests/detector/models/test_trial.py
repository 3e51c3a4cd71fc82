"""The trial: a model that knows more than the loss wins against a threshold, one that does not gains nothing."""

import numpy as np
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.fit import FitPolicy, fit_workload
from detector.models.format import SCHEMA, ModelFile
from detector.models.trial import LOSS, MIN_ROWS, trial

KEY = WorkloadKey("Deployment/shop/web")
FEATURES = ("cpu_cores", LOSS)


def rows(count: int, seed: int, *, follows_load: bool) -> np.ndarray:
    draw = np.random.default_rng(seed)
    load = draw.uniform(0.2, 1.0, count)
    usual = 0.045 * load**2 if follows_load else draw.uniform(0.001, 0.045, count)
    return np.stack([load, usual * draw.lognormal(0, 0.05, count)], axis=1)


def made(train: np.ndarray) -> ModelFile:
    model = fit_workload(KEY, train, None, FitPolicy(min_samples=100))
    assert model is not None
    return ModelFile(SCHEMA, FEATURES, 0.0, (model,))


def test_a_model_gains_where_the_ordinary_loss_follows_the_load() -> None:
    file = made(rows(800, 1, follows_load=True))
    found = trial(file, KEY, rows(400, 2, follows_load=True))
    assert found is not None
    assert found.gain > 0.1
    assert found.recall > 0.8
    assert found.false_alarms < 0.05
    assert found == trial(file, KEY, rows(400, 2, follows_load=True)), "equal rows give equal trials"


def test_it_gains_little_where_the_loss_says_all() -> None:
    file = made(rows(800, 1, follows_load=False))
    found = trial(file, KEY, rows(400, 2, follows_load=False))
    assert found is not None
    assert found.gain < 0.15


def test_too_few_or_unmeasured_rows_say_nothing() -> None:
    file = made(rows(300, 1, follows_load=True))
    assert trial(file, KEY, rows(MIN_ROWS - 1, 2, follows_load=True)) is None
    assert trial(file, KEY, np.full((200, 2), np.nan)) is None
    assert trial(file, KEY, np.full((200, 2), 1.0)) is None, "all above the rule's own threshold"
    assert (
        trial(ModelFile(SCHEMA, ("cpu_cores", "cpi"), 0.0, file.models), KEY, rows(200, 2, follows_load=True)) is None
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_suspects_everything_gains_nothing_over_a_threshold(seed: int) -> None:
    import msgspec

    file = made(rows(300, 1, follows_load=True))
    always = msgspec.structs.replace(file, models=(msgspec.structs.replace(file.models[0], threshold=1e9),))
    found = trial(always, KEY, rows(400, seed, follows_load=True))
    assert found is not None
    assert found.false_alarms > 0.2
    assert found.gain <= 0.02
