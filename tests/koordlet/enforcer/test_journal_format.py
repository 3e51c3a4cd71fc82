"""The journal's text under torn writes and damage: records read back were once written, in order, up to the tear."""

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from koordlet.enforcer.journal_format import (
    SCHEMA,
    Begin,
    Drop,
    Handover,
    Hold,
    JournalEntry,
    Kind,
    Record,
    decode,
    encode,
)
from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import KernelFile, ProcessFiles, ResourceGroup, ResourceTasks

words = st.text(st.characters(codec="utf-8"), max_size=12)
paths = st.sampled_from(["/a", "/b", "/c d", "/ä"])
places = st.one_of(
    st.builds(KernelFile, path=paths, format=st.sampled_from(Format), item=words),
    st.builds(ProcessFiles, path=paths, proc=st.just("/proc"), name=st.just("oom_score_adj")),
    st.builds(ResourceTasks, path=paths, root=st.just("/sys/fs/resctrl")),
    st.builds(ResourceGroup, path=paths),
)
entries = st.builds(
    JournalEntry,
    attribute=places,
    identity=words,
    original=words,
    ours=st.lists(words, max_size=3).map(tuple),
    by_kernel=st.booleans(),
    target=words,
    knob=words,
    strategy=words,
    verdict=words,
    lease_end=st.floats(allow_nan=False, allow_infinity=False),
)
changes = st.lists(st.one_of(st.builds(Hold, entry=entries), st.builds(Drop, key=paths)), max_size=6)


def lived(records: list[Record]) -> dict[str, JournalEntry]:
    live = {}
    for record in records:
        if isinstance(record, Hold):
            live[record.entry.attribute.key] = record.entry
        elif isinstance(record, Drop):
            live.pop(record.key, None)
    return live


def whole(records: list[Record]) -> tuple[list[Record], bytes]:
    everything = [Begin(SCHEMA, "boot"), *records]
    return everything, encode(everything, 0)


@given(changes)
def test_what_was_written_is_read(records: list[Record]) -> None:
    everything, content = whole(records)
    found = decode(content)
    assert (found.live, found.records, found.boot) == (lived(records), len(everything), "boot")
    assert not found.damage
    assert not found.torn_bytes


@given(changes, st.booleans())
def test_cut_at_every_byte_it_is_what_stood_before(records: list[Record], zeros: bool) -> None:
    everything, content = whole(records)
    ends = [len(encode(everything[:count], 0)) for count in range(len(everything) + 1)]
    for cut in range(len(content) + 1):
        complete = max(count for count, end in enumerate(ends) if end <= cut)
        # A file system may have made room for what was never written.
        tail = b"\0" * (len(content) - cut) if zeros else b""
        found = decode(content[:cut] + (tail if cut == ends[complete] else b""))
        assert found.records == complete
        assert found.live == lived(everything[:complete])
        assert not found.damage
        assert found.torn_bytes == (len(tail) if cut == ends[complete] else cut - ends[complete])


@given(changes, st.data())
@example([Drop("/a")], None)
def test_a_changed_byte_never_brings_back_what_was_not_written(records: list[Record], data: st.DataObject) -> None:
    everything, content = whole(records)
    position = data.draw(st.integers(0, len(content) - 1)) if data else 3
    bit = data.draw(st.integers(0, 7)) if data else 1
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    found = decode(bytes(damaged))
    ends = [len(encode(everything[:count], 0)) for count in range(len(everything) + 1)]
    intact = max(count for count, end in enumerate(ends) if end <= position)
    assert found.records == intact
    assert found.live == lived(everything[:intact])
    assert bool(found.damage) != bool(found.torn_bytes)
    assert found.damage == "" or found.lost_bytes == len(content) - ends[intact]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    found = decode(content)
    assert found.live == {} or found.records > 0


def test_a_lost_record_in_the_middle_is_damage() -> None:
    records: list[Record] = [Begin(SCHEMA, "boot"), Drop("/a"), Drop("/b")]
    lines = encode(records, 0).splitlines(keepends=True)
    found = decode(lines[0] + lines[2])
    assert "number 2 where 1 was expected" in found.damage


def test_another_schema_is_refused() -> None:
    assert "koord.journal/v9" in decode(encode([Begin("koord.journal/v9", "boot")], 0)).damage


def test_names_on_disk_stay() -> None:
    """A journal of an earlier version restores: its field names are a format, whatever the code calls them."""
    body = (
        b'{"number":1,"record":{"type":"hold","entry":{"place":{"type":"file","path":"/cg/a/cpu.max","form":"cpu.max",'
        b'"layout":"whole","item":"","is_cgroup":true},"identity":"7","original":"max 100000","ours":["20000 100000"],'
        b'"by_kernel":false,"target":"/a","knob":"cpu.max","strategy":"calm","verdict":"","lease_end":5.0}}}'
    )
    begin = encode([Begin("koord.journal/v1", "boot-1")], 0)
    live = decode(begin + b"%08x %s\n" % (zlib.crc32(body), body)).live
    assert live["/cg/a/cpu.max"].attribute == KernelFile("/cg/a/cpu.max", Format.CPU_MAX)
    assert live["/cg/a/cpu.max"].kind is Kind.ACTION
    later = b'"lease_end":5.0,"value":"","kind":"action","protocol":null}}}'
    written = encode([Hold(live["/cg/a/cpu.max"])], 1)
    assert written.endswith(body.replace(b'"lease_end":5.0}}}', later) + b"\n")


@pytest.mark.parametrize("after", ["nothing", "a torn record", "another record"])
def test_a_handover_counts_as_the_last_record_only(after: str) -> None:
    content = encode([Begin(SCHEMA, "boot-1"), Handover(77.5)], 0)
    content += {"nothing": b"", "a torn record": b"1234", "another record": encode([Drop("x")], 2)}[after]
    assert decode(content).handover_until == (None if after == "another record" else 77.5)
