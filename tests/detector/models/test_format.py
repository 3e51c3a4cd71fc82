"""Model files: what was written is read back bit by bit, and what cannot be evaluated is refused with the reason."""

from typing import Any

import msgspec
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.format import (
    SCHEMA,
    Forest,
    Mixture,
    ModelFile,
    ModelsRefused,
    Svm,
    Tree,
    WorkloadModel,
    decode_models,
    encode_models,
)

STUMP = Tree((1, 1, 2), (2, 1, 2), (0, 0, 0), (0.5, 0.0, 0.0), (0.0, 1.0, 2.0))
SVM = Svm(0.1, (0.3,), ((1.0, 2.0),))
FOREST = Forest(2.0, (STUMP,))
MIXTURE = Mixture((1.0,), ((0.0, 0.0),), (((1.0, 0.0), (0.0, 1.0)),))


def model(part: Svm | Forest | Mixture, **changes: Any) -> WorkloadModel:
    whole = WorkloadModel(WorkloadKey("web"), (0.0, 0.0), (1.0, 1 / 3), -0.1, part, 10, "labels", {"x": 0.5})
    return msgspec.structs.replace(whole, **changes)


def file(*models: WorkloadModel, schema: str = SCHEMA) -> ModelFile:
    return ModelFile(schema, ("a", "b"), 5.0, models)


def test_round_trip() -> None:
    whole = file(model(SVM), model(FOREST), model(MIXTURE))
    assert decode_models(encode_models(whole)) == whole


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"{", "not a model file", id="cut short"),
        pytest.param(encode_models(file(schema="koord.models/v0")), "train anew", id="older schema"),
        pytest.param(encode_models(file(model(SVM, center=(0.0,)))), "center", id="narrow center"),
        pytest.param(encode_models(file(model(SVM, scale=(1.0, 0.0)))), "above zero", id="scale zero"),
        pytest.param(encode_models(file(model(SVM, threshold=float("inf")))), "threshold", id="threshold not a number"),
        pytest.param(encode_models(file(model(Svm(0.1, (), ())))), "pair", id="no vectors"),
        pytest.param(encode_models(file(model(Svm(0.1, (1.0,), ((1.0,),))))), "vector", id="narrow vector"),
        pytest.param(encode_models(file(model(Forest(0.0, (STUMP,))))), "denominator", id="denominator zero"),
        pytest.param(
            encode_models(file(model(Forest(1.0, (Tree((0, 0), (1, 1), (0, 0), (0.0, 0.0), (0.0, 0.0)),))))),
            "children",
            id="a tree that loops",
        ),
        pytest.param(
            encode_models(file(model(Forest(1.0, (Tree((0,), (0,), (7,), (0.0,), (0.0,)),))))),
            "feature 7",
            id="feature",
        ),
        pytest.param(encode_models(file(model(Mixture((1.0,), ((0.0, 0.0),), ())))), "pair", id="no precision"),
        pytest.param(
            encode_models(file(model(Mixture((1.0,), ((0.0, 0.0),), (((1.0, 0.0), (0.0, 0.0)),))))),
            "diagonal",
            id="singular precision",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ModelsRefused, match=reason):
        decode_models(data)
