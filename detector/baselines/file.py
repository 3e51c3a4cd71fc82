"""Baselines as versioned JSON with a checksum: bytes in, values out; reading and replacing files is the caller's.

A file that cannot be trusted is refused whole with a reason, so that a caller can keep it aside, log why, and rebuild;
no cell is dropped in silence.
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


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    saved_seconds: float
    buckets_per_octave: int
    refused: int
    cells: tuple[CellRecord, ...]
    told: tuple[ToldTime, ...] = ()


class _Envelope(msgspec.Struct, frozen=True):
    schema: str
    sha256: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


def encode(baselines: Baselines, now_seconds: float, told: tuple[ToldTime, ...] = ()) -> bytes:
    """The file's content; equal baselines at one time give equal bytes. `told` adds to what the baselines hold."""
    records = baselines.records(now_seconds)
    body = _Body(now_seconds, PER_OCTAVE, baselines.refused, records, (*baselines.told, *told))
    raw = msgspec.json.encode(body)
    return msgspec.json.encode(_Envelope(SCHEMA, hashlib.sha256(raw).hexdigest(), msgspec.Raw(raw)))


def decode(data: bytes, now_seconds: float, policy: BaselinePolicy | None = None) -> Baselines:
    """The baselines of a file, aged to `now_seconds`. Raises BaselineRefused with the reason."""
    body = _body(data)
    for record in body.cells:
        _check(record)
    for each in body.told:
        if not (0 <= each.seconds < math.inf and 0 <= each.until_seconds < math.inf):
            raise BaselineRefused(f"{each.victim}, {each.rule}: a time is negative or not finite")
    policy = policy or BaselinePolicy()
    if len(body.cells) > policy.max_cells:
        raise BaselineRefused(f"{len(body.cells)} cells are more than max_cells = {policy.max_cells}; raise it")
    baselines = Baselines(policy)
    baselines.absorb(body.cells, body.saved_seconds)
    baselines.age(now_seconds)
    baselines.refused, baselines.told = body.refused, body.told
    return baselines


def _body(data: bytes) -> _Body:
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except msgspec.DecodeError as error:
        raise BaselineRefused(f"not a baseline file: {error}") from error
    if envelope.schema != SCHEMA:
        raise BaselineRefused(f"schema is {envelope.schema!r}, this version reads {SCHEMA!r}")
    if hashlib.sha256(bytes(envelope.body)).hexdigest() != envelope.sha256:
        raise BaselineRefused("sha256 does not match the body: the file is damaged")
    try:
        body = msgspec.json.decode(envelope.body, type=_Body)
    except msgspec.DecodeError as error:
        raise BaselineRefused(f"body: {error}") from error
    if body.buckets_per_octave != PER_OCTAVE:
        raise BaselineRefused(f"{body.buckets_per_octave} buckets an octave, this version counts in {PER_OCTAVE}")
    return body


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
