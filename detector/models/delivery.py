"""Models of one workload as every node reads them from its profile: packed plain numbers with a checksum, bounded.

The checksum is of the unpacked JSON, so that a packing that differs is told apart from numbers that do.
"""

import base64
import binascii
import hashlib
import zlib

import msgspec

from api.crds.analysis import MAX_MODELS_CHARS
from detector.models.format import ModelFile, ModelsRefused, WorkloadModel, decode_models, encode_models

MAX_PACKED_CHARS = MAX_MODELS_CHARS
MAX_PLAIN_BYTES = 262_144
SIGNIFICANT_DIGITS = 7
"""Of each number: scores move by less than what a feature is measured to."""


def pack(file: ModelFile) -> tuple[str, str] | None:
    """Return text and SHA-256 of as many models as fit, the best founded first; None if none does."""
    models = sorted(file.models, key=lambda each: -each.samples)
    while models:
        plain = encode_models(_rounded(msgspec.structs.replace(file, models=tuple(models))))
        text = base64.b64encode(zlib.compress(plain, 9)).decode()
        if len(plain) <= MAX_PLAIN_BYTES and len(text) <= MAX_PACKED_CHARS:
            return text, hashlib.sha256(plain).hexdigest()
        models.pop()
    return None


def unpack(text: str, sha256: str, workload: str) -> ModelFile:
    """Return the models of a workload. Raises ModelsRefused with the reason, whatever the text is."""
    return decode(unpack_plain(text, sha256), workload)


def unpack_plain(text: str, sha256: str) -> bytes:
    """Return the JSON of a workload's models. Raises ModelsRefused with the reason, whatever the text is."""
    if len(text) > MAX_PACKED_CHARS:
        raise ModelsRefused(f"{len(text)} characters, more than {MAX_PACKED_CHARS}")
    try:
        stream = zlib.decompressobj()
        plain = stream.decompress(base64.b64decode(text, validate=True), MAX_PLAIN_BYTES + 1)
    except (zlib.error, binascii.Error, ValueError) as error:
        raise ModelsRefused(f"not packed models: {error}") from error
    if len(plain) > MAX_PLAIN_BYTES or not stream.eof:
        raise ModelsRefused(f"incomplete, or more than {MAX_PLAIN_BYTES} bytes")
    if hashlib.sha256(plain).hexdigest() != sha256:
        raise ModelsRefused("the checksum is another one")
    return plain


def decode(plain: bytes, workload: str) -> ModelFile:
    """Return the models of a workload from their JSON. Raises ModelsRefused with the reason."""
    file = decode_models(plain)
    if not file.models or not file.features:
        raise ModelsRefused("no models, or no features")
    for model in file.models:
        if model.key.workload != workload:
            raise ModelsRefused(f"a model of another workload, {model.key.workload[:80]}")
    return file


def _rounded(file: ModelFile) -> ModelFile:
    rounded = _round(msgspec.to_builtins(file.models))
    return msgspec.structs.replace(file, models=msgspec.convert(rounded, tuple[WorkloadModel, ...]))


def _round(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _round(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_round(each) for each in value]
    return value
