"""Fitting: what is strange is suspected, what is ordinary seldom, labels are used, equal seeds give equal models."""

import numpy as np
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.bank import ModelBank
from detector.models.fit import FitPolicy, fit_profile, fit_workload
from detector.models.format import SCHEMA, ModelFile, encode_models

WEB = WorkloadKey("web")
POLICY = FitPolicy(min_samples=50)


def ordinary(count: int = 400) -> np.ndarray:
    rng = np.random.default_rng(4)
    load = rng.uniform(1, 4, count)
    return np.stack([load, load * 1e9 + rng.normal(0, 1e7, count), np.full(count, 7.0)], axis=1)


def test_strange_rows_are_suspected_and_ordinary_ones_seldom() -> None:
    model = fit_workload(WEB, ordinary(), None, POLICY)
    assert model is not None
    assert model.chosen_by == "background"
    assert set(model.average_precision) == {"gaussian_mixture", "isolation_forest", "one_class_svm"}
    bank = ModelBank(ModelFile(SCHEMA, ("load", "ns", "constant"), 0.0, (model,)))
    strange = np.array([[2.0, 9e9, 7.0], [40.0, 40e9, 7.0]])
    assert bank.evaluate([WEB, WEB], strange).suspicious.all()
    assert bank.evaluate([WEB] * 400, ordinary()).suspicious.mean() < 0.03


def test_a_candidate_as_good_as_the_best_is_taken() -> None:
    model = fit_workload(WEB, ordinary(), None, POLICY)
    assert model is not None
    family = model.model.__struct_config__.tag
    assert model.average_precision[str(family)] >= max(model.average_precision.values()) - 0.005


def test_labelled_samples_choose_but_do_not_train() -> None:
    rows = np.concatenate([ordinary(), ordinary(40) * [1.0, 3.0, 1.0]])
    labels = np.arange(440) >= 400
    model = fit_workload(WEB, rows, labels, POLICY)
    assert model is not None
    assert (model.chosen_by, model.samples) == ("labels", 400)
    bank = ModelBank(ModelFile(SCHEMA, ("load", "ns", "constant"), 0.0, (model,)))
    assert bank.evaluate([WEB] * 40, rows[400:]).suspicious.mean() > 0.9


@pytest.mark.parametrize(
    ("count", "fitted"),
    [pytest.param(49, False, id="too few"), pytest.param(50, True, id="just enough")],
)
def test_too_few_samples_give_no_model(count: int, fitted: bool) -> None:
    rows = np.concatenate([ordinary(count), np.full((30, 3), np.nan)])
    models, skipped = fit_profile({WEB: (rows, None)}, POLICY)
    assert (len(models), len(skipped)) == ((1, 0) if fitted else (0, 1))


def test_equal_seeds_give_equal_files() -> None:
    one, two = (fit_profile({WEB: (ordinary(150), None)}, POLICY)[0] for _ in range(2))
    assert encode_models(ModelFile(SCHEMA, ("a", "b", "c"), 0.0, one)) == encode_models(
        ModelFile(SCHEMA, ("a", "b", "c"), 0.0, two)
    )
