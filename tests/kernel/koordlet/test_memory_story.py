"""Best-effort work holds 60 % of a limit, the online service beside it grows beyond the rest.

With the agent the service gets its memory in time; without it the kernel's OOM killer kills a process, or the service
waits for reclaim. The agent and the programs are real, the limit is that of a cgroup around all three.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

MIB = 1 << 20
START_PART, END_PART, CACHE_PART, HELD_PART = 0.10, 0.70, 0.25, 0.35
"""Of the limit: the service at first and at last; best-effort page cache, and best-effort anonymous memory."""
GROWTH_SECONDS = 10.0
CALM_SECONDS = 5.0
"""After the service has all it wants."""
PATIENCE_SECONDS = 120.0

# Takes memory in steps of 1 MiB that start when they should, then says how late the latest of them was done.
SERVICE = """
import mmap, sys, time
first, last, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
taken = mmap.mmap(-1, last << 20)
def touch(number):
    for offset in range(number << 20, (number + 1) << 20, 4096):
        taken[offset] = 1
for number in range(first):
    touch(number)
print("ready", flush=True)
sys.stdin.readline()
began, late = time.monotonic(), 0.0
for number in range(first, last):
    due = began + seconds * (number - first) / (last - first)
    time.sleep(max(due - time.monotonic(), 0))
    touch(number)
    late = max(late, time.monotonic() - due)
print(late, flush=True)
sys.stdin.readline()
"""
# Holds anonymous memory.
SORT = """
import mmap, sys
taken = mmap.mmap(-1, int(sys.argv[1]) << 20)
for offset in range(0, len(taken), 4096):
    taken[offset] = 1
print("ready", flush=True)
sys.stdin.readline()
"""
# Reads a file again and again, all of it in so many seconds.
SCAN = """
import sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
told = False
while True:
    began, done = time.monotonic(), 0
    with open(path, "rb", buffering=0) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        while piece := stream.read(1 << 20):
            done += len(piece)
            if told:
                time.sleep(max(began + seconds * done / size - time.monotonic(), 0))
    if not told:
        print("ready", flush=True)
    told = True
"""
SETTINGS = """\
[[qos]]
match = "{root}/online"
class = "LS"
[[qos]]
match = "{root}/scan"
class = "BE"
[[qos]]
match = "{root}/sort"
class = "BE"
[probes]
backend = "none"
[metrics]
enabled = false
[detection]
baselines_file = ""
[enforcer]
enabled = true
evict = true
strategies = ["memory_headroom"]
only = ["{root}/*"]
state_dir = "{directory}/state"
audit_file = "{directory}/audit.jsonl"
[strategies.node_slo.extensions.memoryHeadroom]
enable = true
"""


def limit_mib() -> int:
    """A GiB, or a third of a small machine."""
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return min(1024, total_kib // 3 // 1024)


@dataclass
class Story:
    """Outcome of a run: seconds, and parts of the time that the service grew."""

    late_seconds: float | None
    """How late its latest step was; None where it was killed."""
    stalled_ratio: float | None
    """Time with some task of the service stalled on memory; None where the kernel keeps no PSI for it."""
    oom_kills: int
    kept: dict[str, float] = field(default_factory=dict)
    """Part of the time that each best-effort program ran on."""
    audit: list[dict[str, Any]] = field(default_factory=list)


def oom_kills(cgroups: list[TestCgroup]) -> int:
    """Return the OOM kills in all of `cgroups`; v1 counts in each, v2 in the topmost for all."""
    v1 = cgroups[0].tree.version == "v1"
    counted = 0
    for cgroup in cgroups if v1 else cgroups[:1]:
        words = (cgroup.memory_dir / ("memory.oom_control" if v1 else "memory.events")).read_text().split()
        counted += int(words[words.index("oom_kill") + 1])
    return counted


def stalled_seconds(cgroup: TestCgroup) -> float | None:
    pressure = cgroup.unified_dir / "memory.pressure" if cgroup.unified_dir else None
    if pressure is None or not pressure.exists():
        return None
    some = pressure.read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


def started(cgroup: TestCgroup, program: str, *arguments: object) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", program, *map(str, arguments)]
    process = cgroup.spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


def say(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b"go\n")
    process.stdin.flush()


@contextmanager
def agent(root: str, directory: Path) -> Iterator[Path]:
    """Run the agent with its enforcer enabled; yields the audit file."""
    settings, audit = directory / "koordlet.toml", directory / "audit.jsonl"
    settings.write_text(SETTINGS.format(root=root, directory=directory))
    log = directory / "koordlet.log"
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "koordlet", "run", "--standalone", "--config", str(settings)]
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        wait_for(lambda: (directory / "state/journal").exists(), PATIENCE_SECONDS, check=alive(process, log))
        time.sleep(3.0)
        yield audit
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def play(tree: CgroupTree, directory: Path, *, protected: bool) -> Story:
    whole = limit_mib()
    hole = directory / "hole"
    with hole.open("wb") as stream:
        stream.truncate(int(CACHE_PART * whole) * MIB)
    with tree.make_cgroup("story") as root:
        root.set_memory_limit(whole * MIB)
        online, scan, sort = (root.make_cgroup(name) for name in ("online", "scan", "sort"))
        watched = [root, online, scan, sort]
        programs = {
            "scan": started(scan, SCAN, hole, GROWTH_SECONDS / 5),
            "sort": started(sort, SORT, int(HELD_PART * whole)),
        }
        sizes = (int(START_PART * whole), int(END_PART * whole))
        service = started(online, SERVICE, *sizes, GROWTH_SECONDS)
        if not protected:
            return grow(service, online, programs, watched)
        with agent(root.path, directory) as audit:
            story = grow(service, online, programs, watched)
        story.audit = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
        return story


def grow(
    service: subprocess.Popen[bytes],
    online: TestCgroup,
    programs: dict[str, subprocess.Popen[bytes]],
    watched: list[TestCgroup],
) -> Story:
    """Let the service grow to the end, or until it is killed."""
    stalled, began = stalled_seconds(online), time.monotonic()
    ended: dict[str, float] = {}
    say(service)
    assert service.stdout
    until = began + PATIENCE_SECONDS
    line = b""
    grown = None
    while time.monotonic() < until:
        for name, process in programs.items():
            if name not in ended and process.poll() is not None:
                ended[name] = time.monotonic() - began
        if grown is None and (service.poll() is not None or _readable(service)):
            line, grown = service.stdout.readline(), time.monotonic()
            until = grown + CALM_SECONDS
        time.sleep(0.05)
    seconds = time.monotonic() - began
    after = stalled_seconds(online)
    return Story(
        late_seconds=float(line) if line else None,
        stalled_ratio=None if stalled is None or after is None else (after - stalled) / seconds,
        oom_kills=oom_kills(watched),
        kept={name: min(ended.get(name, seconds) / seconds, 1.0) for name in programs},
    )


def _readable(process: subprocess.Popen[bytes]) -> bool:
    return bool(select.select([process.stdout], [], [], 0)[0])


def show(capsys: pytest.CaptureFixture[str], story: Story) -> None:
    """The figures, past pytest's capture: a run is a measurement, too."""
    steps = " ".join(f"{line['outcome']}:{line['target'].rpartition('/')[2]}" for line in story.audit)
    with capsys.disabled():
        sys.stdout.write(
            f"\nlate {story.late_seconds} s, stalled {story.stalled_ratio}, OOM kills {story.oom_kills}, "
            f"kept {story.kept}\n{steps}\n"
        )


def test_without_protection_a_process_is_killed_or_the_service_waits(
    tree: CgroupTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = play(tree, tmp_path, protected=False)
    show(capsys, story)
    assert story.oom_kills > 0 or (story.stalled_ratio or 0) > 0.01


def test_the_service_gets_its_memory_in_time_without_an_oom_kill(
    tree: CgroupTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = play(tree, tmp_path, protected=True)
    show(capsys, story)
    steps = [(line["outcome"], Path(line["file"]).name) for line in story.audit]
    v1 = tree.version == "v1"
    if not v1 and any(outcome == "unsupported" for outcome, _ in steps):
        pytest.skip("no memory.reclaim: Linux before 5.19")
    assert story.oom_kills == 0, story
    assert story.late_seconds is not None, story
    if story.stalled_ratio is not None:
        assert story.stalled_ratio < 0.01, story
    cap = "memory.limit_in_bytes" if v1 else "memory.high"
    first = [
        steps.index(step)
        for step in (
            ("reclaimed", cap if v1 else "memory.reclaim"),
            ("set", cap),
            ("terminated", "cgroup.procs"),
        )
    ]
    assert first == sorted(first), steps
    assert {line["target"].rpartition("/")[2] for line in story.audit if line["outcome"] == "terminated"} == {"sort"}
