"""Evaluation equals scikit-learn's own answer, for many models of all kinds at once, without importing it."""

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.bank import ModelBank
from detector.models.fit import export_forest, export_mixture, export_svm
from detector.models.format import SCHEMA, Forest, Mixture, ModelFile, Svm, WorkloadModel, decode_models, encode_models

WIDTH = 6


def key(number: int) -> WorkloadKey:
    return WorkloadKey(f"w{number}")


def fitted(kind: str, seed: int, samples: int = 300) -> tuple[Any, Svm | Forest | Mixture]:
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import GaussianMixture
    from sklearn.svm import OneClassSVM

    rows = np.random.default_rng(seed).normal(size=(samples, WIDTH))
    if kind == "svm":
        svm = OneClassSVM(gamma="scale", nu=0.02 + 0.02 * seed).fit(rows)
        return svm, export_svm(svm)
    if kind == "forest":
        forest = IsolationForest(n_estimators=8 + 8 * seed, max_samples=128, random_state=seed).fit(rows)
        return forest, export_forest(forest)
    mixture = GaussianMixture(1 + seed, random_state=seed).fit(rows)
    return mixture, export_mixture(mixture)


def bank_of(parts: list[Svm | Forest | Mixture], threshold: float = 0.0) -> ModelBank:
    ones, zeros = (1.0,) * WIDTH, (0.0,) * WIDTH
    models = tuple(
        WorkloadModel(key(number), zeros, ones, threshold, part, 300, "labels", {}) for number, part in enumerate(parts)
    )
    file = ModelFile(SCHEMA, tuple(f"f{number}" for number in range(WIDTH)), 0.0, models)
    return ModelBank(decode_models(encode_models(file)))


def test_scores_equal_scikit_learn_for_all_models_at_once() -> None:
    estimators, parts = zip(
        *(fitted(kind, seed) for seed in range(3) for kind in ("svm", "forest", "mixture")), strict=True
    )
    rng = np.random.default_rng(11)
    numbers = rng.integers(0, len(parts), 400)
    rows = rng.normal(size=(400, WIDTH)) * rng.choice([0.1, 1.0, 5.0], size=(400, 1))
    found = bank_of(list(parts)).evaluate([key(number) for number in numbers.tolist()], rows).score
    for number, estimator in enumerate(estimators):
        mine = numbers == number
        assert mine.sum() > 10
        assert np.abs(found[mine] - estimator.score_samples(rows[mine])).max() < 1e-6


@pytest.mark.parametrize("kind", ["svm", "forest", "mixture"])
def test_a_bank_of_one_kind_and_rows_far_away(kind: str) -> None:
    estimator, part = fitted(kind, 1)
    rows = np.random.default_rng(2).normal(size=(20, WIDTH)) * 50
    found = bank_of([part]).evaluate([key(0)] * 20, rows)
    assert found.score == pytest.approx(estimator.score_samples(rows), rel=1e-9, abs=1e-6)


def test_no_model_or_no_measurement_is_no_suspicion() -> None:
    rows = np.full((3, WIDTH), 9.0)
    rows[1, 2] = np.nan
    found = bank_of([fitted("mixture", 0)[1]]).evaluate([key(0), key(0), key(5)], rows)
    assert found.suspicious.tolist() == [True, False, False]
    assert np.isnan(found.score).tolist() == [False, True, True]


def test_no_models_and_no_rows() -> None:
    assert np.isnan(bank_of([]).evaluate([key(0)], np.ones((1, WIDTH))).score).all()
    assert len(bank_of([fitted("svm", 0)[1]]).evaluate([], np.ones((0, WIDTH))).score) == 0


def test_permuting_rows_permutes_scores() -> None:
    bank = bank_of([fitted(kind, 1)[1] for kind in ("svm", "forest", "mixture")])
    rng = np.random.default_rng(5)
    rows, order = rng.normal(size=(60, WIDTH)), rng.permutation(60)
    keys = [key(number % 3) for number in range(60)]
    plain = bank.evaluate(keys, rows).score
    shuffled = bank.evaluate([keys[number] for number in order.tolist()], rows[order]).score
    assert shuffled == pytest.approx(plain[order], rel=1e-12)


def test_scikit_learn_is_not_imported() -> None:
    code = "import sys, detector.models.bank, detector.models.fit; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_five_hundred_containers_are_scored_in_milliseconds() -> None:
    parts = [fitted(kind, 1)[1] for kind in ("svm", "forest", "mixture")]
    bank = bank_of([parts[number % 3] for number in range(500)])
    rows = np.random.default_rng(0).normal(size=(500, WIDTH))
    keys = [key(number) for number in range(500)]
    spent = []
    for _ in range(10):
        start = time.process_time()
        bank.evaluate(keys, rows)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.02
