"""Rebuilds after a changed source, objects that are the same in every folder, C sources of an installed package."""

import shutil
import tomllib
from pathlib import Path

import pytest

from probes import build
from probes.build import PLAIN_C, SOURCES, TARGETS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one program and one header of plain C, in place of the real one."""
    for name in ("bpf", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "bpf" / "tiny.bpf.c").write_text('#include "answer.h"\nint answer = ANSWER;\n')
    (tmp_path / "c" / "answer.h").write_text("#define ANSWER 42\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "bpf")
    monkeypatch.setattr(build, "PLAIN_C", tmp_path / "c")
    monkeypatch.setattr(build, "OBJECTS", tmp_path / "objects")
    return tmp_path


def test_changed_header_of_plain_c_rebuilds(sources: Path) -> None:
    target = next(iter(TARGETS.values()))
    assert [path.name for path in build.build(target)] == ["tiny.bpf.o"]
    assert build.build(target) == []
    (sources / "c" / "answer.h").write_text("#define ANSWER 43\n")
    assert [path.name for path in build.build(target)] == ["tiny.bpf.o"]


def test_an_object_is_the_same_in_every_folder(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = '__attribute__((section("raw_tp/x"))) int answered(int *context) { return *context + ANSWER; }\n'
    with (sources / "bpf" / "tiny.bpf.c").open("a") as stream:
        stream.write(program)
    other = shutil.copytree(sources, sources.with_name("another folder"))
    target = next(iter(TARGETS.values()))
    (first,) = build.build(target)
    for name, folder in (("SOURCES", "bpf"), ("PLAIN_C", "c"), ("OBJECTS", "objects")):
        monkeypatch.setattr(build, name, other / folder)
    (second,) = build.build(target)
    assert first != second
    assert first.read_bytes() == second.read_bytes()
    assert str(sources).encode() not in first.read_bytes()
    assert b"bpf/tiny.bpf.c" in first.read_bytes(), "BTF names the source"


def test_package_carries_every_c_source() -> None:
    package = PLAIN_C.parent
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["probes"]
    carried = {path for pattern in patterns for path in package.glob(pattern)}
    written = {path for folder in (PLAIN_C, SOURCES, package / "bcc") for path in folder.glob("*.[ch]")}
    assert written
    assert written <= carried
