"""Images hold the directory's files, and are made again only when it changed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.vm import images


def listed(image: Path, directory: str = "/") -> set[str]:
    done = subprocess.run(
        ["debugfs", "-R", f"ls -p {directory}", str(image)], capture_output=True, text=True, check=True
    )
    return {line.split("/")[5] for line in done.stdout.splitlines() if line} - {".", "..", "lost+found"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "package" / "module.py").write_text("value = 1\n")
    return source


def test_image_holds_the_files_and_is_kept_while_they_stay(source: Path, tmp_path: Path) -> None:
    first = images.image_of(source, tmp_path / "cache")
    made = first.stat().st_mtime_ns
    assert listed(first, "/package") == {"module.py"}
    assert images.image_of(source, tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == made


def test_changed_directory_gets_another_image_and_the_old_one_goes(source: Path, tmp_path: Path) -> None:
    first = images.image_of(source, tmp_path / "cache")
    os.utime(source / "package" / "module.py", (1, 1))
    second = images.image_of(source, tmp_path / "cache")
    assert second != first
    assert not first.exists()


def test_snapshot_leaves_out_what_is_no_source(source: Path, tmp_path: Path) -> None:
    for name in (".git", "build", ".mypy_cache"):
        (source / name).mkdir()
    (tmp_path / "scratch").mkdir()
    assert listed(images.snapshot(source, tmp_path / "scratch")) == {"package"}


def test_a_snapshot_is_compiled_whatever_this_python_writes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "scratch").mkdir()
    image = images.snapshot(source, tmp_path / "scratch")
    assert listed(image, "/package") == {"module.py", "__pycache__"}
    assert not (source / "package" / "__pycache__").exists()
