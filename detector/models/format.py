"""Anomaly models as plain numbers in versioned JSON: written by training, read by nodes."""

import math
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from detector.baselines.values import WorkloadKey

SCHEMA = "koord.models/v1"
Vector: TypeAlias = tuple[float, ...]
Matrix: TypeAlias = tuple[Vector, ...]


class ModelsRefused(ValueError):
    """The bytes are no models that this version trusts; the message is the reason."""


class Svm(msgspec.Struct, frozen=True, tag="one_class_svm"):
    """score = sum of weights * exp(-gamma * |x - vector|^2)."""

    gamma: float
    weights: Vector
    vectors: Matrix


class Tree(msgspec.Struct, frozen=True):
    """Nodes of one isolation tree; a leaf has itself as both children and its expected path length as `depth`."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: Vector
    depth: Vector


class Forest(msgspec.Struct, frozen=True, tag="isolation_forest"):
    """score = -2 ** (-(sum of depths) / denominator) (Liu, Ting and Zhou, ICDM 2008)."""

    denominator: float
    trees: tuple[Tree, ...]


class Mixture(msgspec.Struct, frozen=True, tag="gaussian_mixture"):
    """score = log of the sum of weighted normal densities.

    `precisions` holds the upper Cholesky factor of each component's inverse covariance.
    """

    weights: Vector
    means: Matrix
    precisions: tuple[Matrix, ...]


class WorkloadModel(msgspec.Struct, frozen=True):
    """The model of one workload on one node type, and the grounds of its choice."""

    key: WorkloadKey
    center: Vector
    scale: Vector
    """A feature x enters the model as (x - center) / scale."""
    threshold: float
    """Scores below it are suspicious."""
    model: Svm | Forest | Mixture
    samples: int
    chosen_by: str
    """`labels` or `background`: the samples that the candidates' precision was measured against."""
    average_precision: dict[str, float]
    """Of each candidate on held-out samples."""


class _Version(msgspec.Struct, frozen=True):
    schema: str


class ModelFile(msgspec.Struct, frozen=True):
    """File that `koord-detector train` writes."""

    schema: str
    features: tuple[str, ...]
    """Names of the feature columns, in the order of every model's vectors."""
    trained_seconds: float
    models: tuple[WorkloadModel, ...]


def encode_models(file: ModelFile) -> bytes:
    """Versioned JSON; numbers keep every bit."""
    return msgspec.json.encode(file)


def decode_models(data: bytes) -> ModelFile:
    """The models of a file. Raises ModelsRefused with the reason."""
    try:
        version = msgspec.json.decode(data, type=_Version).schema
        if version != SCHEMA:
            raise ModelsRefused(f"schema is {version!r}, this version reads {SCHEMA!r}; train anew")
        file = msgspec.json.decode(data, type=ModelFile)
    except msgspec.DecodeError as error:
        raise ModelsRefused(f"not a model file: {error}") from error
    for model in file.models:
        _check(model, len(file.features))
    return file


def _check(model: WorkloadModel, width: int) -> None:
    where = f"model of {model.key.workload}"
    if len(model.center) != width or len(model.scale) != width or not all(scale > 0 for scale in model.scale):
        raise ModelsRefused(f"{where}: center and scale must have {width} values, scales above zero")
    if not math.isfinite(model.threshold):
        raise ModelsRefused(f"{where}: threshold is not finite")
    for fault in _faults(model.model, width):
        raise ModelsRefused(f"{where}: {fault}")


def _faults(model: Svm | Forest | Mixture, width: int) -> Iterator[str]:
    if isinstance(model, Svm):
        if not model.weights or len(model.weights) != len(model.vectors):
            yield "weights and vectors do not pair"
        if any(len(vector) != width for vector in model.vectors):
            yield f"a vector has not {width} values"
    elif isinstance(model, Mixture):
        if not model.weights or not len(model.weights) == len(model.means) == len(model.precisions):
            yield "weights, means and precisions do not pair"
        matrices = (model.means, *model.precisions)
        if any(len(row) != width for matrix in matrices for row in matrix):
            yield f"a mean or precision has not {width} columns"
        if any(len(matrix) != width for matrix in model.precisions):
            yield f"a precision has not {width} rows"
        if any(weight <= 0 for weight in model.weights):
            yield "a weight is not above zero"
        if any(row[i] <= 0 for matrix in model.precisions for i, row in enumerate(matrix) if i < len(row)):
            yield "a precision's diagonal is not above zero"
    else:
        if not model.trees or model.denominator <= 0:
            yield "no trees, or a denominator not above zero"
        for tree in model.trees:
            yield from _tree_faults(tree, width)


def _tree_faults(tree: Tree, width: int) -> Iterator[str]:
    size = len(tree.left)
    if not size or any(len(column) != size for column in (tree.right, tree.feature, tree.threshold, tree.depth)):
        yield "a tree's columns differ in length"
        return
    for node, (left, right, feature) in enumerate(zip(tree.left, tree.right, tree.feature, strict=True)):
        leaf = left == right == node
        if not leaf and not (node < left < size and node < right < size):
            yield f"node {node} of a tree has children outside the nodes after it"
        if not 0 <= feature < width:
            yield f"node {node} of a tree asks for feature {feature} of {width}"
