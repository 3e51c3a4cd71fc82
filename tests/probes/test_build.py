"""Rebuilds after a changed source, and the C sources that an installed package carries."""

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


def test_package_carries_every_c_source() -> None:
    package = PLAIN_C.parent
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["probes"]
    carried = {path for pattern in patterns for path in package.glob(pattern)}
    written = {path for folder in (PLAIN_C, SOURCES, package / "bcc") for path in folder.glob("*.[ch]")}
    assert written
    assert written <= carried
