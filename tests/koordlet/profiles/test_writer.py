"""Profile files: whole or not at all, bounded, readable by training; and what is lost is counted."""

import os
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from api.window import Window
from detector.__main__ import main as detector
from detector.models.format import decode_models
from koordlet.profiles.segment import PARTIAL
from koordlet.profiles.settings import ProfileSettings
from koordlet.profiles.writer import ProfileWriter, surplus
from tests.koordlet.profiles.test_rows import frame

SETTINGS = ProfileSettings(enabled=True, every_seconds=2.0, segment_seconds=20.0)


def writer(directory: Path, **given: object) -> ProfileWriter:
    settings = msgspec.structs.replace(SETTINGS, directory=str(directory), **given)
    return ProfileWriter(settings, "EPYC", 1.0)


def feed(profiles: ProfileWriter, seconds: range) -> None:
    for second in seconds:
        profiles.after_tick(Window([frame(second), frame(second + 1)]), [])


def test_a_segment_is_a_file_that_training_reads(tmp_path: Path) -> None:
    directory = tmp_path / "profiles"
    profiles = writer(directory)
    feed(profiles, range(25))
    profiles.close()
    assert (profiles.written, profiles.lost_rows) == (2, 0)
    tables = [pq.read_table(path) for path in sorted(directory.glob("*.parquet"))]
    assert [len(table) for table in tables] == [22, 4]
    assert set(tables[0].column_names) >= {"time", "workload", "container", "node_type", "interference", "cpu_cores"}
    assert np.diff(sorted(set(tables[0].column("time").to_pylist()))).tolist() == [2.0] * 10
    output = tmp_path / "models.json"
    files = [str(path) for path in directory.glob("*.parquet")]
    ran = CliRunner().invoke(detector, ["train", *files, "-o", str(output), "--min-samples", "5", "-f", "cpu_cores"])
    assert ran.exit_code == 0, ran.output
    keys = [(model.key.workload, model.key.node_type) for model in decode_models(output.read_bytes()).models]
    assert keys == [("Deployment/shop/web", "EPYC"), ("Job/shop/batch", "EPYC")]


def test_many_rows_make_a_file_earlier(tmp_path: Path) -> None:
    profiles = writer(tmp_path, segment_rows=4)
    feed(profiles, range(4))
    profiles.close()
    assert profiles.written == 1


def test_the_oldest_files_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(b"x" * 3000)
    (tmp_path / "other").write_bytes(b"x" * 9000)
    assert [path.name for path in surplus(tmp_path, 6000)] == ["a.parquet"]
    profiles = writer(tmp_path, max_bytes=4096)
    feed(profiles, range(3))
    profiles.close()
    names = {path.name[:7] for path in tmp_path.iterdir()}
    assert names <= {"other", "verdict", "profile", "c.parqu"}
    assert "profile" in names, "the newest file stays"


def test_what_an_agent_of_before_left_half_done_is_removed(tmp_path: Path) -> None:
    half = tmp_path / f"profile-x.parquet{PARTIAL}"
    half.write_bytes(b"half")
    writer(tmp_path)
    assert not half.exists()


def test_a_directory_that_cannot_be_written_costs_rows_that_are_counted(tmp_path: Path) -> None:
    directory = tmp_path / "profiles"
    profiles = writer(directory, segment_rows=2)
    os.rmdir(directory / "verdicts")
    os.rmdir(directory)
    directory.write_text("a file is in the way")
    feed(profiles, range(1))
    profiles.close()
    assert (profiles.written, profiles.lost_rows) == (0, 2)


def test_a_writer_that_hangs_does_not_hold_up_the_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    profiles = writer(tmp_path / "profiles", segment_rows=2, every_seconds=0.1)
    started = time.thread_time()
    feed(profiles, range(5))
    assert time.thread_time() - started < 1.0
    assert profiles.lost_rows == 8
    (tmp_path / "go").touch()
    profiles.close()
    assert (profiles.written, profiles.lost_rows) == (0, 10)
