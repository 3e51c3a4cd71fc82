"""Models as nodes get them: what is packed comes back, and nothing else is believed."""

import base64
import hashlib
import zlib

import msgspec
import pytest

from detector.baselines.values import WorkloadKey
from detector.models.delivery import MAX_PACKED_CHARS, MAX_PLAIN_BYTES, pack, unpack
from detector.models.format import SCHEMA, ModelFile, ModelsRefused, Svm, WorkloadModel, encode_models

WEB = "Deployment/shop/web"


def model(workload: str = WEB, container: str = "main", samples: int = 300, vectors: int = 3) -> WorkloadModel:
    part = Svm(0.5, (1.0 / 3.0,) * vectors, ((0.1, 0.2),) * vectors)
    key = WorkloadKey(workload, container)
    return WorkloadModel(key, (0.0, 0.0), (1.0, 1.0), 0.1, part, samples, "background", {"one_class_svm": 0.9})


def file(*models: WorkloadModel) -> ModelFile:
    return ModelFile(SCHEMA, ("cpu_cores", "cpu_wait_neighbour"), 1.7e9, models or (model(),))


def packed(plain: bytes) -> tuple[str, str]:
    return base64.b64encode(zlib.compress(plain)).decode(), hashlib.sha256(plain).hexdigest()


def test_what_is_packed_comes_back_but_for_digits_that_no_score_needs() -> None:
    text, checksum = pack(file()) or ("", "")
    found = unpack(text, checksum, WEB)
    assert found.features == file().features
    assert found.models[0].key == model().key
    assert isinstance(found.models[0].model, Svm)
    assert found.models[0].model.weights == pytest.approx((1 / 3,) * 3, rel=1e-6)
    assert found.models[0].threshold == 0.1


def test_of_many_models_the_best_founded_are_delivered_within_the_bound() -> None:
    import numpy as np

    draw = np.random.default_rng(1)
    parts = tuple(tuple(row) for row in draw.normal(size=(1000, 2)).tolist())
    big = Svm(0.5, tuple(draw.normal(size=1000).tolist()), parts)
    models = [msgspec.structs.replace(model(container=f"c{n}", samples=100 * n), model=big) for n in range(1, 6)]
    text, checksum = pack(file(*models)) or ("", "")
    assert 0 < len(text) <= MAX_PACKED_CHARS
    kept = unpack(text, checksum, WEB).models
    assert kept[0].key.container == "c5"
    assert len(kept) < len(models)
    huge = Svm(0.5, big.weights * 20, parts * 20)
    assert pack(file(msgspec.structs.replace(model(), model=huge))) is None


@pytest.mark.parametrize(
    ("text", "checksum", "reason"),
    [
        ("", "", "incomplete"),
        ("%%%", "", "not packed"),
        ("x" * (MAX_PACKED_CHARS + 4), "", "characters"),
        (base64.b64encode(b"no zlib").decode(), "", "not packed"),
        (packed(encode_models(file()))[0], "0" * 64, "checksum"),
        (packed(encode_models(file()))[0][:-8], packed(encode_models(file()))[1], "incomplete"),
        (*packed(b"0" * (MAX_PLAIN_BYTES + 1)), "more than"),
        (*packed(b'{"schema": "koord.models/v9"}'), "schema"),
        (*packed(b"[" * 100_000), "not a model file|invalid"),
        (*packed(encode_models(file(model("Deployment/shop/other")))), "another workload"),
        (*packed(encode_models(ModelFile(SCHEMA, ("a",), 0.0, ()))), "no models"),
        (*packed(encode_models(ModelFile(SCHEMA, ("a",), 0.0, (model(),)))), "must have 1 values"),
    ],
    ids=[
        "empty",
        "alphabet",
        "long",
        "nozlib",
        "checksum",
        "torn",
        "bomb",
        "schema",
        "deep",
        "stranger",
        "none",
        "width",
    ],
)
def test_hostile_and_torn_texts_are_refused_with_a_reason(text: str, checksum: str, reason: str) -> None:
    with pytest.raises(ModelsRefused, match=reason):
        unpack(text, checksum, WEB)
