"""The journal's text: one record a line, `<crc32> <json>`, numbered without gaps. Pure.

A record that is torn at the end was being written when the agent died; the change that it announced was not made, since
a record is in the file before its change. An unreadable record further up is damage: only those before it count.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from koordlet.host.attributes import Attribute

SCHEMA = "koord.journal/v2"
_READABLE = frozenset({"koord.journal/v1", SCHEMA})
"""Version 1 knew no protocol state: all its entries are actions."""


class Kind(StrEnum):
    """Kind of what is in effect at an attribute."""

    ACTION = "action"
    """Leased; restored when the agent goes."""
    PROTOCOL = "protocol"
    """State that the protocol gives the pod; it stays when the agent goes."""


class ProtocolState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Protocol state of one attribute, in effect or below an action."""

    text: str
    """Canonical text of the attribute."""
    knob: str
    value: str
    """Of the whole knob, in the knob's syntax."""
    strategy: str


class JournalEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"attribute": "place"}
):
    """One attribute that is not as it was found. Field names on disk are a format: `rename` keeps them."""

    attribute: Attribute
    identity: str
    """Inode number of the cgroup; a later cgroup of the same path is not written."""
    original: str
    ours: tuple[str, ...]
    """Every text of ours that the attribute may hold, the requested one last."""
    by_kernel: bool = False
    """Changed by the kernel as a side effect; restored, never set."""
    target: str
    knob: str
    strategy: str
    verdict: str
    lease_end: float
    """Seconds since the epoch at which the lease was to end when it was recorded; for people, not for deciding."""
    value: str = ""
    """Of the whole knob, in the knob's syntax."""
    kind: Kind = Kind.ACTION
    protocol: ProtocolState | None = None
    """Text to return to when the action ends; None: the original."""

    def without_action(self) -> "JournalEntry":
        """Return the entry by which the action is undone: its original is what the protocol gives the attribute."""
        return msgspec.structs.replace(self, original=self.protocol.text) if self.protocol else self

    def as_protocol_state(self) -> "JournalEntry | None":
        """Return the entry that remains once the action is undone; None where the attribute is as it was found."""
        state = self.protocol
        if state is None or state.text == self.original:
            return None
        return msgspec.structs.replace(
            self,
            kind=Kind.PROTOCOL,
            by_kernel=False,
            knob=state.knob,
            value=state.value,
            strategy=state.strategy,
            verdict="",
            ours=(state.text,),
        )


class Begin(msgspec.Struct, frozen=True, tag="begin", forbid_unknown_fields=True):
    """First record of every journal."""

    schema: str
    boot: str
    """Kernel's boot id: after a reboot there is nothing to put back."""


class Hold(msgspec.Struct, frozen=True, tag="hold", forbid_unknown_fields=True):
    """The attribute is about to be changed."""

    entry: JournalEntry


class Drop(msgspec.Struct, frozen=True, tag="drop", forbid_unknown_fields=True):
    """The attribute is restored or given up."""

    key: str


class Handover(msgspec.Struct, frozen=True, tag="handover", forbid_unknown_fields=True):
    """The agent ended as planned: the next one may take its actions over until a moment of the monotonic clock."""

    until_seconds: float


Record = Begin | Hold | Drop | Handover


class _Numbered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    record: Record


@dataclass(frozen=True, slots=True)
class Decoded:
    """Content of a journal. `damage` is empty or names record and problem; `lost_bytes` are not accounted for."""

    boot: str = ""
    live: dict[str, JournalEntry] = field(default_factory=dict)
    records: int = 0
    torn_bytes: int = 0
    damage: str = ""
    lost_bytes: int = 0
    handover_until: float | None = None
    """Monotonic second until which the actions may be taken over; None where the agent ended otherwise."""


def encode(records: Iterable[Record], first_number: int) -> bytes:
    """Encode records as lines."""
    lines = []
    for number, record in enumerate(records, first_number):
        body = msgspec.json.encode(_Numbered(number, record))
        lines.append(b"%08x %s\n" % (zlib.crc32(body), body))
    return b"".join(lines)


def decode(content: bytes) -> Decoded:
    """Read a journal as far as it goes; never raises."""
    boot, live, number, position = "", dict[str, JournalEntry](), 0, 0
    handover: float | None = None
    while position < len(content):
        end = content.find(b"\n", position)
        line = content[position : end if end >= 0 else len(content)]
        try:
            record = _record(line, number) if end >= 0 else None
        except ValueError as error:
            rest = len(content) - position
            if not content[position:].strip(b"\0"):
                return Decoded(boot, live, number, torn_bytes=rest, handover_until=handover)
            return Decoded(boot, live, number, damage=f"record {number + 1}: {error}", lost_bytes=rest)
        if record is None:
            return Decoded(boot, live, number, torn_bytes=len(content) - position, handover_until=handover)
        handover = record.until_seconds if isinstance(record, Handover) else None
        if isinstance(record, Begin):
            boot = record.boot
        elif isinstance(record, Hold):
            live[record.entry.attribute.key] = record.entry
        elif isinstance(record, Drop):
            live.pop(record.key, None)
        number, position = number + 1, end + 1
    return Decoded(boot, live, number, handover_until=handover)


def _record(line: bytes, number: int) -> Record:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("the checksum does not fit")
    try:
        found = msgspec.json.decode(body, type=_Numbered)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not understood: {error}") from error
    if found.number != number:
        raise ValueError(f"number {found.number} where {number} was expected")
    if (number == 0) != isinstance(found.record, Begin):
        raise ValueError("a journal begins with one record that says so")
    if isinstance(found.record, Begin) and found.record.schema not in _READABLE:
        raise ValueError(f"schema {found.record.schema!r} is not {SCHEMA!r}")
    return found.record
