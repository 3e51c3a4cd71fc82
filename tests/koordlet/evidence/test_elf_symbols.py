"""Function names from ELF files: this interpreter's own, hostile ones and the kernel's table."""

import io
import struct
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.evidence import elf_symbols
from koordlet.evidence.elf_symbols import ElfImage, printable
from koordlet.evidence.kernel_symbols import KernelSymbols
from koordlet.host.files import HostTree
from tests.koordlet.evidence.elf_files import elf
from tests.trees import make_tree


def test_exported_functions_of_a_program_have_names() -> None:
    with Path(sys.executable).resolve().open("rb") as stream:
        image = ElfImage(stream)
        tables = image.tables()
    names = {table.at(start) for table in tables for start in table.starts.tolist()}
    assert names & {"PyObject_Call", "_PyEval_EvalFrameDefault", "main", "_start"}


@given(st.binary(max_size=300), st.integers(0, 63), st.integers(0, 255))
def test_a_torn_file_is_a_value_error(content: bytes, place: int, byte: int) -> None:
    head = bytearray(Path(sys.executable).resolve().open("rb").read(4096))
    head[place] = byte
    for data in (content, bytes(head), b"\x7fELF\x02\x01\x01" + content):
        try:
            ElfImage(io.BytesIO(data)).tables()
        except ValueError:
            continue


def test_sections_are_counted_where_the_first_one_tells_their_number() -> None:
    many = elf((0, 0, 0, 0, 0, elf_symbols.MAX_SECTIONS + 1, 0), count=0, rest=bytes(64 * elf_symbols.MAX_SECTIONS))
    with pytest.raises(ValueError, match="too many sections"):
        ElfImage(many)


def test_a_file_has_one_symbol_table_however_many_it_tells() -> None:
    at = 64 * 43
    rest = b"\0main\0" + struct.pack("<IBBHQQ", 1, 2, 0, 1, 0x1000, 16)
    image = ElfImage(elf((0,) * 7, (0, 3, 0, 0, at, 6, 0), *[(0, 2, 0, 0, at + 6, 24, 1)] * 40, rest=rest))
    assert [found.at(0x1004) for found in image.tables()] == ["main"]


def test_an_address_wraps_at_64_bits() -> None:
    image = ElfImage(elf((0,) * 7, segments=[(64, 4096, (1 << 64) - 16)]))
    assert image.address_of(64 + 32) == 16


def test_a_name_without_end_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_symbols, "MAX_READ_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="too much"):
        ElfImage(elf((0, 3, 0, 0, 128, 64, 0), rest=b"A" * (2 << 20)))


def test_nothing_is_read_when_the_time_is_over() -> None:
    with pytest.raises(ValueError, match="no time"):
        ElfImage(elf((0,) * 7), time.monotonic())


def test_names_from_outside_can_be_printed() -> None:
    assert printable(b"a\x1b[31m\xff") == "a?[31m\N{REPLACEMENT CHARACTER}"


def kernel(tmp_path: Path, text: str) -> KernelSymbols:
    make_tree(tmp_path, {"proc/kallsyms": text})
    return KernelSymbols(HostTree(tmp_path))


def test_kernel_functions_are_found_in_any_order(tmp_path: Path) -> None:
    symbols = kernel(
        tmp_path,
        "ffffffff81002000 T later\nffffffff81001000 t first\nffffffff81001800 d data\nffffffffc0000000 t mod\t[xfs]\n",
    )
    asked = (0xFFFFFFFF81001900, 0xFFFFFFFF81002000, 0xFFFFFFFFC0000010, 0x10)
    assert symbols.resolve(asked) == {asked[0]: "first", asked[1]: "later", asked[2]: "mod"}
    (tmp_path / "proc/kallsyms").unlink()
    assert symbols.resolve(asked[:1]) == {asked[0]: "first"}


@pytest.mark.parametrize("text", [pytest.param(None, id="absent"), pytest.param("0" * 16 + " T hidden\n", id="hidden")])
def test_a_kernel_without_addresses_says_so(tmp_path: Path, text: str | None) -> None:
    symbols = kernel(tmp_path, text) if text else KernelSymbols(HostTree(tmp_path))
    assert symbols.resolve([0xFFFFFFFF81000000]) == {}
    assert symbols.reason
