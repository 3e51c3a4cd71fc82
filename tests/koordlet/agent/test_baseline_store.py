"""Baselines on disk: whole or not at all, refused with a reason, never in the way."""

import errno
import logging
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from detector.baselines.file import encode
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselinePolicy, BaselineSample, ToldTime, WorkloadKey
from koordlet.agent.baseline_store import BaselineStore, read_baselines, refused_files, replace

POLICY = BaselinePolicy()


def learned(samples: int = 100) -> Baselines:
    baselines = Baselines(POLICY)
    one = np.ones(1)
    seen = BaselineSample([WorkloadKey("web")], one, np.zeros(1, dtype=np.int64), {"cpi": one})
    for _ in range(samples):
        baselines.learn(seen, time.time())
    return baselines


def make_store(path: Path, save_seconds: float = 3600.0) -> BaselineStore:
    return BaselineStore(path, save_seconds)


def test_what_was_learned_outlives_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "state" / "baselines.json"
    first = make_store(path)
    assert first.load(POLICY) is None
    told = ToldTime("/web", "turnaround", 120.0, time.time())
    first.close(learned(), lambda: (told,))
    loaded = make_store(path).load(POLICY)
    assert loaded is not None
    assert [card.samples for card in loaded.records(time.time())] == [100]
    assert loaded.told == (told,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list(path.parent.glob("*.new"))


def test_nothing_is_made_before_there_is_something_to_save(tmp_path: Path) -> None:
    make_store(tmp_path / "state" / "baselines.json").load(POLICY)
    assert not (tmp_path / "state").exists()


def test_it_saves_when_it_is_time_and_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "baselines.json"
    disk_answers = threading.Event()
    write = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: disk_answers.wait(30) and write(number))
    slow = make_store(path, save_seconds=0.0)
    slow.save_if_due(learned())
    slow.save_if_due(learned())
    assert (slow.saves, slow.failures) == (0, 1)
    disk_answers.set()
    slow.close(learned(7))
    assert (slow.saves, slow.failures) == (2, 1)
    found = read_baselines(path, time.time(), POLICY).baselines
    assert found is not None
    assert found.records(0.0)[0].samples == 7


GOOD = encode(learned(), time.time())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(GOOD.replace(b"baselines/v1", b"baselines/v0"), "this version reads", id="older-schema"),
        pytest.param(GOOD[: len(GOOD) // 2], "not a baseline file", id="truncated"),
        pytest.param(GOOD.replace(b'"web"', b'"wob"'), "damaged", id="corrupt"),
        pytest.param(b"", "not a baseline file", id="empty"),
        pytest.param(b"[probes]\n", "not a baseline file", id="foreign"),
        pytest.param(b"\x00\xff" * 100, "not a baseline file", id="binary"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_kept_aside_with_the_reason(
    tmp_path: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "baselines.json"
    path.write_bytes(content)
    second = make_store(path)
    assert second.load(POLICY) is None
    assert reason in second.refused
    (aside,) = refused_files(path)
    assert aside.read_bytes() == content
    assert aside.name in caplog.text
    assert reason in caplog.text
    second.close(learned())
    assert read_baselines(path, time.time(), POLICY).baselines is not None
    assert aside.read_bytes() == content


def test_a_directory_in_its_place_stays_and_nothing_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    path.mkdir()
    second = make_store(path)
    assert second.load(POLICY) is None
    second.close(learned())
    assert path.is_dir()
    assert not refused_files(path)


def test_a_full_disk_is_logged_once_counted_and_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "baselines.json"
    replace(path, GOOD)

    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    third = make_store(path, save_seconds=0.0)
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(os, "fsync", full)
        for failures in (1, 2):
            third.save_if_due(learned())
            while third.failures < failures:
                time.sleep(0.01)
    assert path.read_bytes() == GOOD
    assert sum("No space left" in record.message for record in caplog.records) == 1
    assert os.listdir(tmp_path) == ["baselines.json"]
    third.close(learned(5))
    assert third.saves == 1


def test_the_rest_of_a_killed_agent_is_removed(tmp_path: Path) -> None:
    old, fresh = tmp_path / ".baselines.json.abc.new", tmp_path / ".baselines.json.def.new"
    for path in (old, fresh):
        path.write_text("half")
    os.utime(old, (0, 0))
    make_store(tmp_path / "baselines.json").load(POLICY)
    assert os.listdir(tmp_path) == [fresh.name]
