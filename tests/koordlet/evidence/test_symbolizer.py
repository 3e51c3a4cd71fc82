"""Names for addresses of living processes: this one's library functions, compiled code, and what has no name."""

import ctypes
import os
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.evidence.elf_symbols import ElfImage
from koordlet.evidence.symbolizer import Symbolizer
from koordlet.host.files import HostTree
from tests.koordlet.evidence.elf_files import SECTIONS_AT, elf
from tests.trees import make_tree


@pytest.fixture
def perf_map() -> Iterator[Path]:
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def address_of(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert address is not None
    return address


def test_a_library_function_has_its_name() -> None:
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([os.getpid()])
    address = address_of("PyObject_Call")
    for _ in range(2):  # the second time from what is known of the file
        frame = symbolizer.user_frames(os.getpid(), [address + 1])[address + 1]
        assert (frame.text, frame.is_named) == ("PyObject_Call", True)
    assert not symbolizer.notes


def test_compiled_code_is_named_by_the_perf_map(perf_map: Path) -> None:
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([os.getpid()])
    perf_map.write_text("1000 20 py::serve:/app/serve.py\n")
    frames = symbolizer.user_frames(os.getpid(), [0x1004, 0x1020])
    assert [(frames[each].text, frames[each].is_named) for each in (0x1004, 0x1020)] == [
        ("py::serve:/app/serve.py", True),
        ("[unknown]", False),
    ]


def test_a_process_that_is_gone_has_no_names() -> None:
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([1 << 30])
    assert symbolizer.name_of(1 << 30) == f"[gone {1 << 30}]"
    assert not symbolizer.user_frames(1 << 30, [4096])[4096].is_named


def test_a_process_that_is_gone_is_not_asked_for_again(tmp_path: Path) -> None:
    symbolizer = Symbolizer(HostTree(tmp_path))
    symbolizer.remember([70])
    map_file(with_function(b"late"), tmp_path, 70)  # its number belongs to another process now
    symbolizer.remember([70])
    assert symbolizer.name_of(70) == "[gone 70]"
    symbolizer.forget()
    symbolizer.remember([70])
    assert symbolizer.name_of(70) == "app"


@pytest.mark.parametrize("error", [OverflowError, MemoryError, RecursionError])
def test_a_file_that_cannot_be_read_costs_its_own_names_alone(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ElfImage, "tables", fail)
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([os.getpid()])
    address = address_of("PyObject_Call")
    assert not symbolizer.user_frames(os.getpid(), [address])[address].is_named
    assert symbolizer.notes


def map_file(content: bytes, root: Path, pid: int) -> None:
    """Make a process of a host that maps a file with this content at 0x1000."""
    line = f"1000-3000 r-xp 00000000 08:01 {pid} /app\n"
    make_tree(root, {f"proc/{pid}/maps": line, f"proc/{pid}/comm": "app\n"})
    (root / f"proc/{pid}/root").mkdir()
    (root / f"proc/{pid}/root/app").write_bytes(content)


def with_function(name: bytes) -> bytes:
    """A file of one build id, whatever its function."""
    strings = b"\0.note.gnu.build-id\0" + name + b"\0"
    note = struct.pack("<III4s4s", 4, 4, 3, b"GNU", b"same")
    symbol = struct.pack("<IBBHQQ", 20, 2, 0, 1, 0, 4096)
    at = SECTIONS_AT + 3 * 64
    sections = [
        (0, 3, 0, 0, at, len(strings), 0),
        (1, 7, 0, 0, at + len(strings), len(note), 0),
        (0, 2, 0, 0, at + len(strings) + len(note), len(symbol), 0),
    ]
    return elf(*sections, segments=[(0, 4096, 0)], rest=strings + note + symbol).getvalue()


def test_a_file_that_claims_the_build_id_of_another_does_not_name_its_functions(tmp_path: Path) -> None:
    symbolizer = Symbolizer(HostTree(tmp_path))
    for pid, name in ((70, b"evil"), (71, b"good")):
        map_file(with_function(name), tmp_path, pid)
    symbolizer.remember([70, 71])
    assert [symbolizer.user_frames(pid, [0x1010])[0x1010].text for pid in (70, 71)] == ["evil", "good"]


def test_a_long_perf_map_costs_little_memory_and_is_told(perf_map: Path) -> None:
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([os.getpid()])
    perf_map.write_bytes(b"1000 20 hot\n" + b"".join(b"%x 1 f\n" % (0x10000 + each) for each in range(500_000)))
    tracemalloc.start()
    try:
        frame = symbolizer.user_frames(os.getpid(), [0x1004])[0x1004]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frame.text == "hot"
    assert peak < 16 << 20
    assert any("too long" in note for note in symbolizer.notes)


def test_no_file_is_opened_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    symbolizer = Symbolizer(HostTree())
    symbolizer.remember([os.getpid()])
    symbolizer.name_for(0)
    monkeypatch.setattr("koordlet.evidence.symbolizer.open_mapped", lambda *_: pytest.fail("opened"))
    monkeypatch.setattr("koordlet.evidence.symbolizer.open_below_root", lambda *_: pytest.fail("opened"))
    addresses = [address_of("PyObject_Call"), 0x1000]
    frames = symbolizer.user_frames(os.getpid(), addresses)
    assert [frames[each].is_named for each in addresses] == [False, False]
    assert any("time for names" in note for note in symbolizer.notes)
