"""Names for addresses of living processes: this one's library functions, compiled code, and what has no name."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.evidence.elf_symbols import ElfImage
from koordlet.evidence.symbolizer import Symbolizer
from koordlet.host.files import HostTree


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
    for _ in range(2):  # the second time from what is known of the build id
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
