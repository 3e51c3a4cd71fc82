"""Recordings: what goes in comes out, to the bit; what was torn or forged is said, and never more than that."""

import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.frame import CGROUP, UNKNOWN_UID, CgroupInfo, CgroupKind, Column, Frame, Table
from detector.recording.columns import TableState, apply, differ, state_of
from detector.recording.files import RecordedSegment, segment_paths, segments
from detector.recording.format import (
    FRAME,
    HEADER,
    MAGIC,
    MAX_BLOCK_BYTES,
    PREFIX_BYTES,
    RecordingRefused,
    encode_header,
    pack_block,
    prefix_of,
    recorded_columns,
    recorded_tables,
    unpack_block,
)
from detector.recording.frames import FrameDecoder, FrameEncoder, essential
from tests.detector.recording.recordings import assert_same, header, mangle, runs, write_segment
from tests.frames import make_frame

files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@files
@given(runs())
def test_what_goes_in_comes_out(tmp_path: Path, made: list[Frame]) -> None:
    path = tmp_path / "s.koordrec"
    write_segment(path, made)
    segment = RecordedSegment(path)
    read = list(segment.frames())
    assert (len(read), segment.damage) == (len(made), None)
    for before, after in zip(made, read, strict=True):
        assert_same(essential(before), after)


@files
@given(runs(most=3), st.data())
def test_a_file_cut_anywhere_gives_the_frames_before_the_cut(
    tmp_path: Path, made: list[Frame], data: st.DataObject
) -> None:
    path = tmp_path / "s.koordrec"
    ends = write_segment(path, made)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    if cut < ends[0]:
        with pytest.raises(RecordingRefused) as caught:
            RecordedSegment(path)
        assert caught.value.offset <= cut
        return
    segment = RecordedSegment(path)
    read = list(segment.frames())
    assert len(read) == sum(end <= cut for end in ends[1:])
    for before, after in zip(made, read, strict=False):
        assert_same(essential(before), after)
    torn = cut - ends[len(read)]
    assert (segment.damage.lost_bytes if segment.damage else 0) == torn


@files
@given(runs(most=3), st.data())
def test_a_flipped_bit_ends_the_segment_where_it_stands(tmp_path: Path, made: list[Frame], data: st.DataObject) -> None:
    path = tmp_path / "s.koordrec"
    ends = write_segment(path, made)
    damaged = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    if place < ends[0]:
        with pytest.raises(RecordingRefused):
            RecordedSegment(path)
        return
    segment = RecordedSegment(path)
    assert len(list(segment.frames())) == sum(end <= place for end in ends[1:])
    assert segment.damage is not None


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_right_checksum_are_refused_or_make_a_frame(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        FrameDecoder().decode(body)


@settings(deadline=None, max_examples=300)
@given(runs(), st.data())
def test_forged_frames_are_refused_or_keep_to_what_frames_promise(made: list[Frame], data: st.DataObject) -> None:
    encoder, decoder = FrameEncoder(), FrameDecoder()
    for frame in made:
        kind, body = opened(encoder.encode(frame))
        forged = msgspec.msgpack.encode(mangle(msgspec.msgpack.decode(body), data))
        try:
            read = decoder.decode(forged)
        except ValueError as error:
            assert str(error)
            return
        assert kind == FRAME
        assert read.cgroup.ids.tolist() == [info.id for info in read.cgroups]
        for table in read.tables.values():
            assert {len(column) for column in (*table.keys.values(), *table.columns.values())} == {len(table)}


def opened(block: bytes) -> tuple[bytes, bytes]:
    kind, length, checksum = prefix_of(block[:PREFIX_BYTES])
    assert length == len(block) - PREFIX_BYTES
    return kind, unpack_block(kind, block[PREFIX_BYTES:], checksum)


@pytest.mark.parametrize("kind", ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">u8", ">f4"])
def test_every_type_keeps_its_bits(kind: str) -> None:
    raw = np.random.default_rng(7).integers(0, 2 if kind == "b1" else 256, 64, dtype=np.uint8).tobytes()
    column: Column = np.frombuffer(raw, dtype=kind)
    table = Table({"cgroup": np.arange(len(column), dtype=np.uint64)}, {"x": column})
    state = state_of(table, frozenset("x"))
    read = apply(differ(state, TableState()), TableState()).table().columns["x"]
    assert read.dtype == column.dtype.newbyteorder("=")
    assert read.tobytes() == column.astype(column.dtype.newbyteorder("=")).tobytes()


def test_text_keys_cannot_be_recorded() -> None:
    with pytest.raises(ValueError, match="plain numbers"):
        state_of(Table({"cgroup": np.array(["a"])}, {}), frozenset())


def test_a_quiet_tick_of_five_hundred_cgroups_costs_next_to_nothing() -> None:
    paths = {number: f"/pod{number}" for number in range(1, 501)}
    columns = {name: range(500) for name in ("cpu.oncpu_ns", "cpu.wait_neighbour_ns", "cpu.wait_self_ns")}
    encoder = FrameEncoder()
    first, second = (len(encoder.encode(make_frame(time, paths, columns))) for time in (1, 2))
    assert first > 1000
    assert second < 250


def test_a_reused_id_with_another_path_is_told() -> None:
    made = [make_frame(1, {1: "/a", 2: "/b"}, {}), make_frame(2, {2: "/b", 1: "/c"}, {})]
    encoder, decoder = FrameEncoder(), FrameDecoder()
    read = [decoder.decode(opened(encoder.encode(frame))[1]) for frame in made]
    assert [info.path for info in read[1].cgroups] == ["/b", "/c"]


@pytest.mark.parametrize(
    ("content", "offset", "reason"),
    [
        pytest.param(b"", 0, "not a recording", id="empty"),
        pytest.param(b"PAR1....", 0, "not a recording", id="another-format"),
        pytest.param(MAGIC, 8, "torn", id="magic-alone"),
        pytest.param(MAGIC + b"X" + bytes(8), 8, "no block starts here", id="no-kind"),
        pytest.param(MAGIC + b"H" + b"\xff" * 8, 8, "no block starts here", id="too-long"),
        pytest.param(MAGIC + pack_block(FRAME, b""), 8, "start with its header", id="frame-first"),
        pytest.param(MAGIC + pack_block(HEADER, b"\xc1"), 8, "no header", id="no-msgpack"),
        pytest.param(MAGIC + pack_block(HEADER, b"\x81\xa6schema\xa2v9"), 8, "schema is 'v9'", id="another-version"),
        pytest.param(MAGIC + pack_block(HEADER, b"\x80"), 8, "schema is None", id="no-schema"),
        pytest.param(encode_header(header())[:-1], 8, "torn", id="torn-header"),
    ],
)
def test_what_is_no_recording_is_refused_by_offset(tmp_path: Path, content: bytes, offset: int, reason: str) -> None:
    path = tmp_path / "s.koordrec"
    path.write_bytes(content)
    with pytest.raises(RecordingRefused, match=reason) as caught:
        RecordedSegment(path)
    assert caught.value.offset == offset
    assert str(path) in str(caught.value)


def test_a_block_that_grows_without_bounds_is_refused() -> None:
    packer = zlib.compressobj(9)
    payload = b"".join(packer.compress(bytes(1 << 20)) for _ in range((MAX_BLOCK_BYTES >> 20) + 1)) + packer.flush()
    with pytest.raises(ValueError, match="whole block"):
        unpack_block(FRAME, payload, zlib.crc32(payload, zlib.crc32(FRAME)))


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        pytest.param({}, "not those of the cgroups", id="no-dense-table"),
        pytest.param({CGROUP: Table({"cgroup": np.array([2], np.uint64)}, {})}, "not those", id="another-id"),
        pytest.param({CGROUP: Table({"cgroup": np.array([1], np.int64)}, {})}, "keys", id="signed-id"),
        pytest.param({"cpu.blame": Table({"cgroup": np.array([1], np.uint64)}, {})}, "keys", id="no-culprit"),
    ],
)  # fmt: skip
def test_frames_that_break_their_promise_are_refused(tables: dict[str, Table], reason: str) -> None:
    frame = Frame(1, 1, (CgroupInfo(1, "/a", "a"),), tables)
    with pytest.raises(ValueError, match=reason):
        FrameDecoder().decode(opened(FrameEncoder().encode(frame))[1])


def test_times_that_cannot_be_are_refused() -> None:
    late = make_frame(1, {}, {})
    decoder, encoder = FrameDecoder(), FrameEncoder()
    decoder.decode(opened(encoder.encode(make_frame(5, {}, {})))[1])
    with pytest.raises(ValueError, match="older"):
        decoder.decode(opened(encoder.encode(late))[1])
    with pytest.raises(ValueError, match="wall clock"):
        FrameDecoder().decode(opened(FrameEncoder().encode(Frame(1, 2**63, (), {})))[1])


def test_a_directory_gives_its_segments_in_order(tmp_path: Path) -> None:
    for name in ("b.koordrec", "a.koordrec", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in segment_paths(tmp_path)] == ["a.koordrec", "b.koordrec"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingRefused, match=r"no \.koordrec file"):
        segment_paths(tmp_path / "empty")


def test_a_segment_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    there, gone = tmp_path / "a.koordrec", tmp_path / "b.koordrec"
    write_segment(there, [])
    said: list[str] = []
    assert [segment.path for segment in segments([there, gone], said.append)] == [there]
    assert "b.koordrec: deleted meanwhile" in said[0]
    with pytest.raises(FileNotFoundError):
        list(segments([gone], said.append))


def test_symptoms_find_their_columns_recorded() -> None:
    assert {"cpu.wait_neighbour_ns", "pmu.llc_misses", "pressure.io_some_us"} <= recorded_columns()
    assert {"cpu.blame", "memory.blame", "blockio.blame", "net.blame", "smt.blame"} == recorded_tables()


def test_cgroups_recorded_before_they_had_a_kind_and_an_owner_are_read() -> None:
    made = make_frame(1.0, {7: "/batch"}, {"cpu.oncpu_ns": [5]})
    block = FrameEncoder().encode(made)
    kind, _length, checksum = prefix_of(block[:PREFIX_BYTES])
    fields = msgspec.msgpack.decode(unpack_block(kind, block[PREFIX_BYTES:], checksum))
    positions, (info,) = fields[2]
    later = {"kind", "pod_uid", "container_id", "kube_qos", "owner_uid"}
    fields[2] = [positions, [{name: value for name, value in info.items() if name not in later}]]
    (read,) = FrameDecoder().decode(msgspec.msgpack.encode(fields)).cgroups
    assert read == CgroupInfo(7, "/batch", "batch", kind=CgroupKind.UNKNOWN, owner_uid=UNKNOWN_UID)
