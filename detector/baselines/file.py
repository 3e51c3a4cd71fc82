"""Baselines as versioned JSON with a checksum: bytes in, values out; reading and replacing files is the caller's.

A file that cannot be trusted is refused whole with a reason, so that a caller can keep it aside, log why, and rebuild;
no cell is dropped in silence. What a later version adds under the same schema is passed over.
"""

import hashlib
import math
import sys

import msgspec

from detector.baselines.learner import Baselines
from detector.baselines.sketch import BUCKETS, LOWEST_EXPONENT, PER_OCTAVE
from detector.baselines.values import LOWEST_OCTAVE, OCTAVES, BaselinePolicy, CellRecord, ToldTime

SCHEMA = "koord.baselines/v1"


class BaselineRefused(ValueError):
    """The bytes are no baselines that this version trusts; the message is the reason."""


class _Body(msgspec.Struct, frozen=True):
    saved_seconds: float
    buckets_per_octave: int
    refused: int
    cells: tuple[CellRecord, ...]


class _Told(msgspec.Struct, frozen=True):
    sha256: str
    times: msgspec.Raw


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    schema: str
    sha256: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")
    told: _Told | None = None
    """Beside the body: versions that do not know it refuse a body with a field that they do not know."""


def encode(baselines: Baselines, now_seconds: float, told: tuple[ToldTime, ...] = ()) -> bytes:
    """The file's content; equal baselines at one time give equal bytes. `told` adds to what the baselines hold."""
    records = baselines.records(now_seconds)
    body = msgspec.json.encode(_Body(now_seconds, PER_OCTAVE, baselines.refused, records))
    times = (*baselines.told, *told)
    raw = msgspec.json.encode(times)
    part = _Told(_sha256(raw), msgspec.Raw(raw)) if times else None
    return msgspec.json.encode(_Envelope(SCHEMA, _sha256(body), msgspec.Raw(body), part))


def decode(data: bytes, now_seconds: float, policy: BaselinePolicy | None = None) -> Baselines:
    """The baselines of a file, aged to `now_seconds`. Raises BaselineRefused with the reason."""
    body, told = _content(data)
    for record in body.cells:
        _check(record)
    for each in told:
        if not (0 <= each.seconds < math.inf and 0 <= each.until_seconds < math.inf):
            raise BaselineRefused(f"{each.victim}, {each.rule}: a time is negative or not finite")
    policy = policy or BaselinePolicy()
    if len(body.cells) > policy.max_cells:
        raise BaselineRefused(f"{len(body.cells)} cells are more than max_cells = {policy.max_cells}; raise it")
    baselines = Baselines(policy)
    baselines.absorb(body.cells, body.saved_seconds)
    baselines.age(now_seconds)
    baselines.refused, baselines.told = body.refused, told
    return baselines


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _content(data: bytes) -> tuple[_Body, tuple[ToldTime, ...]]:
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except msgspec.DecodeError as error:
        raise BaselineRefused(f"not a baseline file: {error}") from error
    if envelope.schema != SCHEMA:
        raise BaselineRefused(f"schema is {envelope.schema!r}, this version reads {SCHEMA!r}")
    if _sha256(bytes(envelope.body)) != envelope.sha256:
        raise BaselineRefused("sha256 does not match the body: the file is damaged")
    part = envelope.told
    if part is not None and _sha256(bytes(part.times)) != part.sha256:
        raise BaselineRefused("sha256 does not match the time of verdicts: the file is damaged")
    try:
        body = msgspec.json.decode(envelope.body, type=_Body)
    except msgspec.DecodeError as error:
        raise BaselineRefused(f"body: {error}") from error
    try:
        told = () if part is None else msgspec.json.decode(part.times, type=tuple[ToldTime, ...])
    except msgspec.DecodeError as error:
        raise BaselineRefused(f"time of verdicts: {error}") from error
    if body.buckets_per_octave != PER_OCTAVE:
        raise BaselineRefused(f"{body.buckets_per_octave} buckets an octave, this version counts in {PER_OCTAVE}")
    return body, told


def _check(record: CellRecord) -> None:
    where = f"{record.key.workload}, {record.signal}, octave {record.octave}"
    times = (record.first_seconds, record.last_seconds, record.kept_until_seconds)
    numbers = (record.weight, record.fall, record.falls, *times, *record.counts)
    if not 0 <= record.octave - LOWEST_OCTAVE < OCTAVES:
        raise BaselineRefused(f"{where}: octave is outside {LOWEST_OCTAVE}..{LOWEST_OCTAVE + OCTAVES - 1}")
    if len(record.buckets) != len(record.counts) or len(set(record.buckets)) != len(record.buckets):
        raise BaselineRefused(f"{where}: buckets and counts do not pair")
    if any(not 0 <= bucket < BUCKETS for bucket in record.buckets):
        raise BaselineRefused(f"{where}: a bucket is outside 0..{BUCKETS - 1}")
    if record.samples < 0 or any(number < 0 or not math.isfinite(number) for number in numbers):
        raise BaselineRefused(f"{where}: a number is negative or not finite")
    ordinary = record.ordinary_octave
    if ordinary is not None and not LOWEST_EXPONENT - 1 <= ordinary < sys.float_info.max_exp:
        raise BaselineRefused(f"{where}: the ordinary level is no power of two that a value can have")
