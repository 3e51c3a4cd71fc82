"""Format of a recording: schema, recorded columns and tables, and layout of a segment.

A segment is a file: `MAGIC`, then blocks. A block is kind, payload length, CRC-32 of kind and payload, payload. The
first block is a `Header`, every other one a frame, or stacks that were taken for a verdict before it. Blocks are only
ever appended, so an interrupted write leaves a prefix that can be read.
"""

import functools
import struct
import zlib
from typing import Literal

import msgspec

from api.loss import LOSS_CAUSES
from api.stacks import StackEvidence
from detector.judging.judge import JudgeSettings, judged_columns
from detector.registry import discover_symptoms

SCHEMA = "koord.recording/v1"
SUFFIX = ".koordrec"
MAGIC = b"KOORDREC"
HEADER, FRAME, STACKS = b"H", b"F", b"S"
MAX_BLOCK_BYTES = 256 << 20
"""Of one block, packed or not; a larger claim is refused before memory is allocated."""

_PREFIX = struct.Struct("<cII")
PREFIX_BYTES = _PREFIX.size


class RecordingRefused(ValueError):
    """Bytes that are no recording this version reads; the message has place and reason."""

    def __init__(self, source: str, offset: int, reason: str) -> None:
        super().__init__(f"{source}: at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a segment, with all that its replay needs."""

    schema: Literal["koord.recording/v1"] = "koord.recording/v1"
    run: str
    """The same for all segments that one agent wrote without a gap."""
    number: int
    """Counts the segments of a run from 0."""
    settings: JudgeSettings
    host: dict[str, str]
    """Facts for display: host name, kernel, versions."""
    checkpoint: bytes
    """The judge's state before the first frame of the segment."""


@functools.cache
def recorded_columns() -> frozenset[str]:
    """Columns of the dense table that a judge may read, and those of the loss ledger."""
    return judged_columns() | {column for cause in LOSS_CAUSES for column in cause.columns}


@functools.cache
def recorded_tables() -> frozenset[str]:
    """Blame tables that some symptom reads."""
    return frozenset(symptom.blame.table for symptom in discover_symptoms().values()) - {""}


def pack_block(kind: bytes, body: bytes, *, runs_only: bool = False) -> bytes:
    """One block, compressed; `runs_only` is faster where there is nothing to find but runs of one byte."""
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE if runs_only else zlib.Z_DEFAULT_STRATEGY)
    payload = packer.compress(body) + packer.flush()
    return _PREFIX.pack(kind, len(payload), zlib.crc32(payload, zlib.crc32(kind))) + payload


def prefix_of(data: bytes) -> tuple[bytes, int, int]:
    """Kind, payload length and checksum; raises ValueError for a kind or length that no block has."""
    kind, length, checksum = _PREFIX.unpack(data)
    if kind not in (HEADER, FRAME, STACKS) or length > MAX_BLOCK_BYTES:
        raise ValueError(f"no block starts here: kind {kind!r}, {length} bytes")
    return kind, length, checksum


def unpack_block(kind: bytes, payload: bytes, checksum: int) -> bytes:
    """The body; raises ValueError where the checksum does not match or the payload grows too large."""
    if zlib.crc32(payload, zlib.crc32(kind)) != checksum:
        raise ValueError("the checksum does not match")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(payload, MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise ValueError(f"cannot be decompressed: {error}") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("does not decompress to a whole block")
    return body


def encode_header(header: Header) -> bytes:
    """Magic and first block of a segment."""
    return MAGIC + pack_block(HEADER, msgspec.msgpack.encode(header))


def encode_stacks(evidence: StackEvidence) -> bytes:
    """One block."""
    return pack_block(STACKS, msgspec.msgpack.encode(evidence))


def decode_stacks(body: bytes) -> StackEvidence:
    """Return the stacks. Raises ValueError with the reason."""
    try:
        return msgspec.msgpack.decode(body, type=StackEvidence)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no stacks: {error}") from error


def decode_header(body: bytes) -> Header:
    """Return the header. Raises ValueError with the reason."""
    try:
        schema = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"\xc0"))
        if msgspec.msgpack.decode(schema) != SCHEMA:
            raise ValueError(f"schema is {msgspec.msgpack.decode(schema)!r}, this version reads {SCHEMA!r}")
        return msgspec.msgpack.decode(body, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no header: {error}") from error
