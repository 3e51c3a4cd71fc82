"""Fit one anomaly model for each workload with scikit-learn and write its parameters as plain numbers.

Candidates are compared by average precision on held-out samples: against labelled interference where the profile
has enough of it, else against a uniform background in the box of the data, which asks how little volume a model needs
to hold the ordinary samples (the mass-volume view of Clémençon and Jakubowicz, 2013). The number of a mixture's
components is chosen by held-out likelihood.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.baselines.values import WorkloadKey
from detector.models.format import Forest, Mixture, Svm, Tree, WorkloadModel

Rows: TypeAlias = NDArray[np.float64]
Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
_HELD_OUT = 0.3
_MIN_LABELLED = 5
_EQUAL_PRECISION = 0.005
"""Of candidates this near to the best, the smallest and quickest is taken."""
_EULER = 0.5772156649015329


class FitPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of fitting; the limits keep files small and nodes quick."""

    min_samples: Count = 100
    """Workloads with fewer ordinary samples get no model."""
    alarm_share: Share = 0.005
    """Share of ordinary training samples that may look suspicious."""
    svm_nu: Share = 0.02
    svm_samples: Count = 2_000
    trees: Count = 32
    tree_samples: Count = 64
    max_components: Count = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    estimator: Any
    export: Callable[[Any], Svm | Forest | Mixture]


def fit_workload(
    key: WorkloadKey, rows: Rows, labels: NDArray[np.bool_] | None, policy: FitPolicy
) -> WorkloadModel | None:
    """The best model of rows (samples, features), None when too few are measured and ordinary.

    `labels` marks samples taken during interference; they never enter the training.
    """
    finite = np.isfinite(rows).all(axis=1)
    harmed = np.zeros(len(rows), dtype=np.bool_) if labels is None else labels
    ordinary, interfered = rows[finite & ~harmed], rows[finite & harmed]
    if len(ordinary) < policy.min_samples:
        return None
    rng = np.random.default_rng(policy.seed)
    order = rng.permutation(len(ordinary))
    held = max(int(len(ordinary) * _HELD_OUT), 1)
    center = ordinary[order[held:]].mean(axis=0)
    spread = ordinary[order[held:]].std(axis=0)
    scale = np.where(spread > 1e-12 * np.maximum(np.abs(center), 1e-300), spread, 1.0)
    train, test = (ordinary[order[held:]] - center) / scale, (ordinary[order[:held]] - center) / scale
    labelled = len(interfered) >= _MIN_LABELLED
    foreign = (interfered - center) / scale if labelled else _background(train, rng)
    candidates = _candidates(train, test, policy)
    precision = {one.name: _average_precision(one.estimator, test, foreign) for one in candidates}
    enough = max(precision.values()) - _EQUAL_PRECISION
    best = next(one for one in candidates if precision[one.name] >= enough)
    return WorkloadModel(
        key=key,
        center=_vector(center),
        scale=_vector(scale),
        threshold=float(np.quantile(best.estimator.score_samples(train), policy.alarm_share)),
        model=best.export(best.estimator),
        samples=len(ordinary),
        chosen_by="labels" if labelled else "background",
        average_precision=precision,
    )


def fit_profile(
    rows_of: Mapping[WorkloadKey, tuple[Rows, NDArray[np.bool_] | None]], policy: FitPolicy
) -> tuple[tuple[WorkloadModel, ...], tuple[WorkloadKey, ...]]:
    """Models of all workloads in key order, and the workloads that have too few samples for one."""
    models, skipped = [], []
    for key in sorted(rows_of, key=lambda one: (one.workload, one.container, one.node_type)):
        model = fit_workload(key, *rows_of[key], policy)
        if model is None:
            skipped.append(key)
        else:
            models.append(model)
    return tuple(models), tuple(skipped)


def export_svm(fitted: Any) -> Svm:
    """Parameters of a OneClassSVM with an RBF kernel."""
    return Svm(float(fitted._gamma), _vector(fitted.dual_coef_[0]), _matrix(fitted.support_vectors_))


def export_forest(fitted: Any) -> Forest:
    """Parameters of an IsolationForest that uses all features in every tree."""
    trees = tuple(_tree(estimator.tree_) for estimator in fitted.estimators_)
    return Forest(len(trees) * _average_path_length(int(fitted.max_samples_)), trees)


def export_mixture(fitted: Any) -> Mixture:
    """Parameters of a GaussianMixture with full covariances."""
    factors = tuple(_matrix(factor) for factor in fitted.precisions_cholesky_)
    return Mixture(_vector(fitted.weights_), _matrix(fitted.means_), factors)


def _candidates(train: Rows, test: Rows, policy: FitPolicy) -> list[_Candidate]:
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import GaussianMixture
    from sklearn.svm import OneClassSVM

    svm = OneClassSVM(kernel="rbf", gamma="scale", nu=policy.svm_nu).fit(train[: policy.svm_samples])
    forest = IsolationForest(
        n_estimators=policy.trees, max_samples=min(policy.tree_samples, len(train)), random_state=policy.seed
    ).fit(train)
    mixtures = [
        GaussianMixture(count, covariance_type="full", reg_covar=1e-4, random_state=policy.seed).fit(train)
        for count in range(1, policy.max_components + 1)
    ]
    mixture = max(mixtures, key=lambda fitted: float(fitted.score(test)))
    return [
        _Candidate("gaussian_mixture", mixture, export_mixture),
        _Candidate("one_class_svm", svm, export_svm),
        _Candidate("isolation_forest", forest, export_forest),
    ]


def _background(train: Rows, rng: np.random.Generator) -> Rows:
    low, high = train.min(axis=0), train.max(axis=0)
    margin = 0.1 * (high - low) + 1e-9
    return rng.uniform(low - margin, high + margin, size=(max(len(train), 500), train.shape[1]))


def _average_precision(fitted: Any, ordinary: Rows, foreign: Rows) -> float:
    from sklearn.metrics import average_precision_score

    anomaly = -np.concatenate([fitted.score_samples(ordinary), fitted.score_samples(foreign)])
    truth = np.concatenate([np.zeros(len(ordinary)), np.ones(len(foreign))])
    return float(average_precision_score(truth, anomaly))


def _tree(tree: Any) -> Tree:
    count = int(tree.node_count)
    left, right = tree.children_left.astype(int), tree.children_right.astype(int)
    level = np.zeros(count)
    for node in range(count):
        if left[node] >= 0:
            level[left[node]] = level[right[node]] = level[node] + 1
    leaf = left < 0
    own = np.arange(count)
    paths = [_average_path_length(int(samples)) for samples in tree.n_node_samples]
    return Tree(
        left=tuple(np.where(leaf, own, left).tolist()),
        right=tuple(np.where(leaf, own, right).tolist()),
        feature=tuple(np.where(leaf, 0, tree.feature).tolist()),
        threshold=_vector(np.where(leaf, 0.0, tree.threshold)),
        depth=_vector(np.where(leaf, level + paths, 0.0)),
    )


def _average_path_length(samples: int) -> float:
    """Of an unsuccessful search in a binary search tree (Liu, Ting and Zhou, ICDM 2008, equation 1)."""
    if samples <= 1:
        return 0.0
    if samples == 2:
        return 1.0
    return 2.0 * (float(np.log(samples - 1.0)) + _EULER) - 2.0 * (samples - 1.0) / samples


def _vector(values: Any) -> tuple[float, ...]:
    return tuple(np.asarray(values, dtype=np.float64).tolist())


def _matrix(values: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(_vector(row) for row in values)
