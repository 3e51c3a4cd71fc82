"""Evaluation of anomaly models for all containers at once.

The scores are those of scikit-learn's `score_samples` (OneClassSVM with an RBF kernel, IsolationForest,
GaussianMixture with full covariances), computed from the parameters in the file; scikit-learn is not needed here.
Lower is less usual. A model only raises suspicion: it names no cause and no culprit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from detector.baselines.values import WorkloadKey
from detector.models.format import Forest, Mixture, ModelFile, Svm


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Scores of each row: columns of length n."""

    score: NDArray[np.float64]
    """scikit-learn's `score_samples`; NaN without a model or with a feature that was not measured."""
    threshold: NDArray[np.float64]
    suspicious: NDArray[np.bool_]


class ModelBank:
    """Models of many workloads, laid out so that one pass scores all rows."""

    def __init__(self, file: ModelFile) -> None:
        self.features = file.features
        self._number = {model.key: index for index, model in enumerate(file.models)}
        self._last_keys: tuple[Sequence[WorkloadKey], NDArray[np.int64]] = ((), np.zeros(0, dtype=np.int64))
        width = len(file.features)
        self._center = np.array([model.center for model in file.models], dtype=np.float64).reshape(-1, width)
        self._scale = np.array([model.scale for model in file.models], dtype=np.float64).reshape(-1, width)
        self._threshold = np.array([model.threshold for model in file.models], dtype=np.float64)
        self._family = np.array([_FAMILIES.index(type(model.model)) for model in file.models], dtype=np.int64)
        self._place = np.zeros(len(file.models), dtype=np.int64)
        for family in range(len(_FAMILIES)):
            members = np.flatnonzero(self._family == family)
            self._place[members] = np.arange(len(members))
        parts = [model.model for model in file.models]
        self._banks: tuple[_SvmBank | _ForestBank | _MixtureBank, ...] = (
            _SvmBank([part for part in parts if isinstance(part, Svm)], width),
            _ForestBank([part for part in parts if isinstance(part, Forest)]),
            _MixtureBank([part for part in parts if isinstance(part, Mixture)], width),
        )

    def evaluate(self, keys: Sequence[WorkloadKey], features: NDArray[np.float64]) -> Suspicion:
        """Score rows of shape (n, features), in the order of `self.features`, by their workloads' models."""
        numbers = self._numbers(keys)
        score = np.full(len(keys), np.nan)
        threshold = np.full(len(keys), np.nan)
        rows = np.flatnonzero((numbers >= 0) & np.isfinite(features).all(axis=1))
        models = numbers[rows]
        scaled = (features[rows] - self._center[models]) / self._scale[models]
        for family, bank in enumerate(self._banks):
            mine = self._family[models] == family
            if mine.any():
                score[rows[mine]] = bank.score(self._place[models[mine]], scaled[mine])
        threshold[numbers >= 0] = self._threshold[numbers[numbers >= 0]]
        return Suspicion(score, threshold, score < threshold)

    def _numbers(self, keys: Sequence[WorkloadKey]) -> NDArray[np.int64]:
        """The place of each workload's model, -1 without one; the same tuple is looked up once."""
        if keys is self._last_keys[0]:
            return self._last_keys[1]
        known = self._number
        numbers = np.fromiter((known.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
        if isinstance(keys, tuple):
            self._last_keys = keys, numbers
        return numbers


class _SvmBank:
    def __init__(self, models: Sequence[Svm], width: int) -> None:
        sizes = np.array([len(model.weights) for model in models], dtype=np.int64)
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        self._gamma = np.array([model.gamma for model in models])
        self._weights = np.array([weight for model in models for weight in model.weights])
        vectors = [vector for model in models for vector in model.vectors]
        self._vectors = np.array(vectors, dtype=np.float64).reshape(-1, width)

    def score(self, models: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        sizes = self._sizes[models]
        firsts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        row = np.repeat(np.arange(len(rows)), sizes)
        vector = np.arange(len(row)) - firsts[row] + self._starts[models][row]
        apart = rows[row] - self._vectors[vector]
        distance = np.einsum("ij,ij->i", apart, apart)
        parts = self._weights[vector] * np.exp(-self._gamma[models][row] * distance)
        return np.asarray(np.add.reduceat(parts, firsts), dtype=np.float64)


class _ForestBank:
    """All trees' nodes in one pool; forests with fewer trees are filled up with a leaf of depth zero."""

    def __init__(self, models: Sequence[Forest]) -> None:
        trees = [tree for model in models for tree in model.trees]
        sizes = [len(tree.left) for tree in trees]
        starts = np.concatenate([[1], 1 + np.cumsum(sizes)]).astype(np.int64)
        shifted = list(zip(trees, starts.tolist(), strict=False))
        self._left = np.array([0, *(child + at for tree, at in shifted for child in tree.left)], dtype=np.int64)
        self._right = np.array([0, *(child + at for tree, at in shifted for child in tree.right)], dtype=np.int64)
        self._feature = np.array([0, *(number for tree in trees for number in tree.feature)], dtype=np.int64)
        self._limit = np.array([0.0, *(number for tree in trees for number in tree.threshold)])
        self._depth = np.array([0.0, *(number for tree in trees for number in tree.depth)])
        self._denominator = np.array([model.denominator for model in models])
        self._roots = np.zeros((len(models), max((len(model.trees) for model in models), default=0)), dtype=np.int64)
        bounds = np.concatenate([[0], np.cumsum([len(model.trees) for model in models])]).astype(np.int64)
        for number, (first, end) in enumerate(pairwise(bounds.tolist())):
            self._roots[number, : end - first] = starts[first:end]

    def score(self, models: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        rounded = rows.astype(np.float32).astype(np.float64)  # trees compare 32-bit features with 64-bit thresholds
        node = self._roots[models]
        owner = np.arange(len(rows))[:, None]
        while True:
            leftward = rounded[owner, self._feature[node]] <= self._limit[node]
            down = np.where(leftward, self._left[node], self._right[node])
            if np.array_equal(down, node):
                break
            node = down
        depths = self._depth[node].sum(axis=1)
        return np.asarray(-np.exp2(-depths / self._denominator[models]), dtype=np.float64)


class _MixtureBank:
    def __init__(self, models: Sequence[Mixture], width: int) -> None:
        most = max((len(model.weights) for model in models), default=0)
        self._means = np.zeros((len(models), most, width))
        self._precisions = np.zeros((len(models), most, width, width))
        self._offset = np.full((len(models), most), -np.inf)
        for number, model in enumerate(models):
            count = len(model.weights)
            factors = np.array(model.precisions)
            self._means[number, :count] = model.means
            self._precisions[number, :count] = factors
            determinant = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
            self._offset[number, :count] = np.log(model.weights) + determinant - 0.5 * width * np.log(2 * np.pi)

    def score(self, models: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        apart = rows[:, None, :] - self._means[models]
        whitened = np.matmul(apart[:, :, None, :], self._precisions[models])[:, :, 0, :]
        logs = self._offset[models] - 0.5 * (whitened**2).sum(axis=2)
        peak = logs.max(axis=1)
        return np.asarray(peak + np.log(np.exp(logs - peak[:, None]).sum(axis=1)), dtype=np.float64)


_FAMILIES: tuple[type[Svm] | type[Forest] | type[Mixture], ...] = (Svm, Forest, Mixture)
