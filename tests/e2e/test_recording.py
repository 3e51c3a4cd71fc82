"""Replay of a recorded run under real load: the same verdict lines, byte by byte."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.verdicts import from_json
from detector.recording.files import RecordedSegment, segment_paths
from probes.probe import Kernel
from tests.cgroups import CgroupTree
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

CONFIG = """
interval_seconds = 0.25
[metrics]
enabled = false
[detection]
baselines_file = "{}/baselines.json"
[recording]
segment_seconds = 3
"""
BUSY = ["sh", "-c", "while :; do :; done"]


@contextmanager
def recording_agent(tmp_path: Path, name: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """Run an agent that records and writes verdict lines; yields the process, the file of lines and the recording."""
    config, lines, directory = tmp_path / "koordlet.toml", tmp_path / f"{name}.jsonl", tmp_path / "rec"
    config.write_text(CONFIG.format(tmp_path))
    command = [sys.executable, "-m", "koordlet", "run", "--standalone", "--json", "--record", str(directory)]
    with lines.open("wb") as out, (tmp_path / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*command, "--config", str(config)], stdout=out, stderr=log)
    try:
        yield process, lines, directory
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def detector(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "detector", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=120)


def test_a_recording_says_what_the_agent_said(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    with recording_agent(tmp_path, "first") as (agent, lines, directory):
        with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
            victim.spawn(BUSY, cpus="0")
            hog.spawn(BUSY, cpus="0")
            wait_for(lambda: b'"open"' in lines.read_bytes(), 90.0, check=alive(agent, lines.with_suffix(".log")))
            wait_for(
                lambda: len(list(directory.glob("*.koordrec"))) >= 3,
                90.0,
                check=alive(agent, lines.with_suffix(".log")),
            )
        wait_for(lambda: b'"close"' in lines.read_bytes(), 90.0, check=alive(agent, lines.with_suffix(".log")))
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    told = lines.read_bytes()
    again = detector("replay", directory, "--json")
    assert (again.returncode, again.stdout) == (0, told), again.stderr.decode()
    assert b"warning" not in again.stderr

    paths = {from_json(line).victim for line in told.splitlines()}
    (opened, *_) = [from_json(line) for line in told.splitlines() if b'"open"' in line and b"victim" in line]
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(opened.time + 0.5))}+00:00"
    explained = detector("explain", directory, "--victim", opened.victim, "--at", moment, "--png", tmp_path / "a.png")
    assert explained.returncode == 0, explained.stderr.decode()
    assert opened.victim in paths
    assert f"rule {opened.rule}" in explained.stdout.decode()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_killed_agent_loses_nothing_it_said(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        victim.spawn(BUSY, cpus="0")
        hog.spawn(BUSY, cpus="0")
        with recording_agent(tmp_path, "killed") as (agent, lines, directory):
            wait_for(lambda: b'"open"' in lines.read_bytes(), 90.0, check=alive(agent, lines.with_suffix(".log")))
            wait_for(
                lambda: len(list(directory.glob("*.koordrec"))) >= 2,
                90.0,
                check=alive(agent, lines.with_suffix(".log")),
            )
            agent.kill()
        first = lines.read_bytes()
        with recording_agent(tmp_path, "second") as (agent, lines, directory):
            wait_for(lambda: b'"open"' in lines.read_bytes(), 90.0, check=alive(agent, lines.with_suffix(".log")))
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(60) == 0
        second = lines.read_bytes()
    segments = [RecordedSegment(path) for path in segment_paths(directory)]
    runs = list(dict.fromkeys(segment.header.run for segment in segments))
    assert len(runs) == 2
    killed = [segment for segment in segments if segment.header.run == runs[0]]
    last_ns = max(frame.wall_ns for segment in killed for frame in segment.frames())
    again = detector("replay", directory, "--json")
    assert again.returncode == 0, again.stderr.decode()
    assert again.stdout.startswith(first)
    assert again.stdout.endswith(second)
    unsaid = again.stdout[len(first) : len(again.stdout) - len(second)].splitlines()
    assert {from_json(line).time for line in unsaid} <= {last_ns / 1e9}, "only the last tick may have been unsaid"
