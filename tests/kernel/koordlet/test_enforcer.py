"""The enforcer on the running kernel: accepted orders of writes, side effects, reclaim, and the dry run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.frame import CgroupInfo
from api.intents import Evict, Intent, Knob, Reclaim, Setting
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks, EnforcerEvent
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.lifecycle import boot_id, open_enforcer, restore
from koordlet.host.cgroups.hierarchies import find_hierarchies, find_mounts
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from tests.cgroups import CgroupTree, TestCgroup, device_number
from tests.disks import NoDiskError, scratch_disk
from tests.emulation import why_no_real_time
from tests.frames import cgroup_info
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside(together=True)]

HOST = HostTree()
V1 = find_hierarchies(HOST).version == 1
MIB = 1 << 20
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def pod(tree: CgroupTree) -> Iterator[TestCgroup]:
    with tree.make_cgroup("enforced") as made:
        yield made


def settings(state: Path, **changes: Any) -> EnforcerSettings:
    given: dict[str, Any] = {
        "enabled": True,
        "strategies": ("*",),
        "evict": True,
        "evict_cooldown_seconds": 0.0,
        "evictions_per_hour": 100,
        "state_dir": str(state / "state"),
        "audit_file": str(state / "audit.jsonl"),
    }
    return EnforcerSettings(**(given | changes))


@pytest.fixture
def enforcer(tmp_path: Path) -> Iterator[Enforcer]:
    opened = open_enforcer(settings(tmp_path), HOST)
    yield opened
    opened.close()


def want(cgroup: TestCgroup, knob: Knob, value: str) -> Setting:
    return Setting(strategy="calm", target=cgroup.path, knob=knob, value=value, reason="because")


def stands(cgroup: TestCgroup, knob: Knob) -> list[str]:
    """Return the values in the files of a knob."""
    assignments = Knobs(HOST).assignments(knob, cgroup.path, {Knob.CPU_MAX: "max 100000"}.get(knob, "1"))
    return [",".join(sorted(assignment.attribute.read() or ())) for assignment in assignments]


def sleeper(cgroup: TestCgroup, script: str = "exec sleep 1000") -> subprocess.Popen[bytes]:
    process = cgroup.spawn(["/bin/sh", "-c", f"{script}"])
    wait_for(lambda: process.pid in cgroup.pids() and b"join" not in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    return process


def ignores_sigterm(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << signal.SIGTERM - 1)


def failures(events: list[EnforcerEvent]) -> list[EnforcerEvent]:
    return [event for event in events if event.outcome not in (Outcome.SET, Outcome.RESTORED, Outcome.UNCHANGED)]


def test_idle_and_back_keeps_the_weight(pod: TestCgroup, enforcer: Enforcer, tmp_path: Path) -> None:
    enforcer.step([want(pod, Knob.CPU_WEIGHT, "50")])
    weight = stands(pod, Knob.CPU_WEIGHT)
    enforcer.close()
    assert stands(pod, Knob.CPU_WEIGHT) != weight
    Path(pod.cpu_dir, "cpu.shares" if pod.tree.version == "v1" else "cpu.weight").write_text("700")
    again = open_enforcer(settings(tmp_path), HOST)
    assert failures(again.step([want(pod, Knob.CPU_IDLE, "1")])) == []
    assert stands(pod, Knob.CPU_IDLE) == ["1"]
    assert stands(pod, Knob.CPU_WEIGHT) != ["700"]
    again.close()
    assert (stands(pod, Knob.CPU_IDLE)[-1], stands(pod, Knob.CPU_WEIGHT)) == ("0", ["700"])


def test_bursts_follow_their_quota_down_and_up(pod: TestCgroup, enforcer: Enforcer) -> None:
    for quota, burst in (("50000", "40000"), ("10000", "10000"), ("5000 200000", "0"), ("80000 50000", "80000")):
        intents: list[Intent] = [want(pod, Knob.CPU_MAX, quota), want(pod, Knob.CPU_BURST, burst)]
        assert failures(enforcer.step(intents)) == []
        assert stands(pod, Knob.CPU_BURST) == [burst]
    assert failures(enforcer.close()) == []
    assert stands(pod, Knob.CPU_BURST) == ["0"]


def test_parents_and_children_move_together(pod: TestCgroup, enforcer: Enforcer) -> None:
    with pod.make_cgroup("inner") as inner, inner.make_cgroup("innermost") as innermost:
        family = (pod, inner, innermost)
        for quota in ("20000 100000", "50000 50000", "5000 100000", "max 100000"):
            assert failures(enforcer.step([want(member, Knob.CPU_MAX, quota) for member in family])) == []
        enforcer.step([want(member, Knob.CPU_MAX, "5000 100000") for member in family])
        assert failures(enforcer.step([])) == []
        assert {tuple(stands(member, Knob.CPU_MAX)) for member in family} in (
            {("max", "100000")},
            {("max 100000",)},
        )


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU cannot be parted")
def test_a_quota_holds_above_larger_ones_of_the_protocol_and_of_others(pod: TestCgroup, enforcer: Enforcer) -> None:
    given, taken = pod.make_cgroup("given"), pod.make_cgroup("taken")
    enforcer.step([want(taken, Knob.CPU_MAX, "60000 100000")])
    before = quota_of(taken)
    paths = [cgroup_info(number, each.path) for number, each in enumerate((pod, given, taken))]
    state = msgspec.structs.replace(want(given, Knob.CPU_MAX, "80000 100000"), protocol_state=True)
    outer = lambda text: want(pod, Knob.CPU_MAX, text)  # noqa: E731
    keeps = msgspec.structs.replace(want(taken, Knob.CPU_MAX, "60000 100000"), protocol_state=True)
    for text, below in (("20000 100000", 20000), ("40000 100000", 40000), ("90000 100000", 90000)):
        for _ in range(2):
            events = enforcer.step([outer(text), state, keeps], paths)
        assert not [each for each in events if each.outcome is Outcome.FAILED], events
        assert quota_of(pod) == below
        if V1:
            assert (quota_of(given), quota_of(taken)) == (min(below, 80000), min(below, 60000))
    enforcer.step([outer("30000 100000"), state, keeps], paths)
    for _ in range(2):  # what the kernel refuses while the outer one is in effect is tried again
        enforcer.step([state, keeps], paths)
    assert (quota_of(pod), quota_of(given), quota_of(taken)) == (-1, 80000, before)


def quota_of(cgroup: TestCgroup) -> int:
    """Quota in µs; -1 is none."""
    file = cgroup.cpu_dir / "cpu.cfs_quota_us"
    text = file.read_text() if file.exists() else (cgroup.cpu_dir / "cpu.max").read_text().split()[0]
    return int(text.replace("max", "-1"))


def test_cpu_lists_move_through_both_of_a_parent_and_its_child(tree: CgroupTree, enforcer: Enforcer) -> None:
    with (
        tree.make_cgroup("lists") as parent,
        parent.make_cgroup("child") as child,
        beside(parent, "cpuset") as upper,
        beside(child, "cpuset") as lower,
    ):
        for folder in (upper, lower) if tree.version == "v1" else ():
            (folder / "cpuset.mems").write_text("0")
            (folder / "cpuset.cpus").write_text("0")
        before = stands(parent, Knob.CPUSET_CPUS)
        for cpus in ("1", "0", "0-1", "1"):
            intents: list[Intent] = [want(cgroup, Knob.CPUSET_CPUS, cpus) for cgroup in (parent, child)]
            assert failures(enforcer.step(intents)) == []
            assert stands(parent, Knob.CPUSET_CPUS) == stands(child, Knob.CPUSET_CPUS) == [cpus]
        assert failures(enforcer.close()) == []
        assert stands(parent, Knob.CPUSET_CPUS) == stands(child, Knob.CPUSET_CPUS) == before


def test_limits_of_memory_and_disks_and_back(pod: TestCgroup, enforcer: Enforcer, tmp_path: Path) -> None:
    try:
        with scratch_disk(tmp_path) as device:
            rules = pod.blkio_dir / ("blkio.throttle.read_bps_device" if pod.tree.version == "v1" else "io.max")
            rules.write_text(
                f"{device_number(str(device))} {'2097152' if pod.tree.version == 'v1' else 'rbps=2097152'}"
            )
            before = rules.read_text()
            intents: list[Intent] = [
                want(pod, Knob.MEMORY_MAX, str(100 * MIB + 7)),
                want(pod, Knob.IO_MAX, f"{device_number(str(device))} rbps=1048576 wiops=100"),
            ]
            assert failures(enforcer.step(intents)) == []
            assert stands(pod, Knob.MEMORY_MAX) == [str(100 * MIB)]
            assert "1048576" in rules.read_text()
            assert {event.outcome for event in enforcer.step(intents)} == {Outcome.UNCHANGED}
            assert failures(enforcer.close()) == []
            assert stands(pod, Knob.MEMORY_MAX) == ["max"]
            assert rules.read_text() == before
    except NoDiskError as error:
        pytest.skip(str(error))


def test_a_memory_limit_grows_beyond_the_limit_of_memory_and_swap(pod: TestCgroup, enforcer: Enforcer) -> None:
    """Runtimes give a container without swap the same limit for both; on cgroup v1 they are one invariant."""
    limit = pod.memory_dir / ("memory.limit_in_bytes" if pod.tree.version == "v1" else "memory.max")
    limit.write_text(str(64 * MIB))
    swap = pod.memory_dir / "memory.memsw.limit_in_bytes"
    if swap.exists():
        swap.write_text(str(64 * MIB))
    assert failures(enforcer.step([want(pod, Knob.MEMORY_MAX, str(128 * MIB))])) == []
    assert stands(pod, Knob.MEMORY_MAX) == [str(128 * MIB)]
    assert failures(enforcer.close()) == []
    assert stands(pod, Knob.MEMORY_MAX) == [str(64 * MIB)]


@contextmanager
def beside(cgroup: TestCgroup, controller: str) -> Iterator[Path]:
    """Return the cgroup's directory in a controller's hierarchy, created where the test's tree has none."""
    v1, unified = find_mounts(HOST)
    mount = v1.get(controller, unified)
    if mount is None:
        pytest.skip(f"no hierarchy has the {controller} controller")
    directory = mount / cgroup.path.lstrip("/")
    made = not directory.exists()
    directory.mkdir(exist_ok=True)
    try:
        yield directory
    finally:
        if made:
            wait_for(lambda: not (directory / "cgroup.procs").read_text())
            directory.rmdir()


def test_freezing_and_the_thaw_that_follows(pod: TestCgroup, enforcer: Enforcer) -> None:
    with beside(pod, "freezer") as directory:
        process = sleeper(pod)
        (directory / "cgroup.procs").write_text(str(process.pid))
        assert failures(enforcer.step([want(pod, Knob.FREEZE, "1")])) == []
        assert stands(pod, Knob.FREEZE)[0] in ("FROZEN", "1")
        assert failures(enforcer.step([])) == []
        assert stands(pod, Knob.FREEZE)[0] in ("THAWED", "0")
        process.kill()
        process.wait()


def test_memory_is_taken_from_a_cgroup(pod: TestCgroup, enforcer: Enforcer, tmp_path: Path) -> None:
    if pod.tree.version == "v2" and not (pod.memory_dir / "memory.reclaim").exists():
        pytest.skip("no memory.reclaim: Linux before 5.19")
    try:
        # A block device's page cache goes with its last opener.
        with scratch_disk(tmp_path) as device, device.open("rb"):
            reader = pod.spawn(["dd", f"if={device}", "of=/dev/null", "bs=1M", "count=64"])
            assert reader.wait(60) == 0
            take_memory(pod, enforcer)
    except NoDiskError as error:
        pytest.skip(str(error))


def usage_bytes(pod: TestCgroup) -> int:
    name = "memory.usage_in_bytes" if pod.tree.version == "v1" else "memory.current"
    return int((pod.memory_dir / name).read_text())


def take_memory(pod: TestCgroup, enforcer: Enforcer) -> None:
    held, limit = usage_bytes(pod), stands(pod, Knob.MEMORY_MAX)
    assert held > 32 * MIB
    intent = Reclaim(strategy="calm", target=pod.path, reason="because", amount_bytes=24 * MIB)
    # Reclaim by the limit ends after 0.2 s: in that time emulated CPUs of a busy host freed 4 MB, or nothing.
    for _ in range(10 if pod.tree.version == "v1" and why_no_real_time() else 1):
        events = enforcer.step([intent])
        assert [event.outcome for event in events] == [Outcome.RECLAIMED]
        if usage_bytes(pod) < held - 8 * MIB:
            break
    assert usage_bytes(pod) < held - 8 * MIB
    assert stands(pod, Knob.MEMORY_MAX) == limit


# Reads a file into its page cache without an end, and takes and gives back anonymous memory beside.
BUSY = """
import mmap, os, sys
path, size = sys.argv[1], int(sys.argv[2])
if not os.fork():
    while True:
        with open(path, "rb", buffering=0) as stream:
            while stream.read(1 << 20):
                pass
while True:
    with mmap.mmap(-1, size) as taken:
        for offset in range(0, size, 4096):
            taken[offset] = 1
"""


def test_reclaim_from_a_cgroup_that_allocates_all_the_time_kills_no_process(
    pod: TestCgroup, enforcer: Enforcer, tmp_path: Path
) -> None:
    if pod.tree.version == "v2" and not (pod.memory_dir / "memory.reclaim").exists():
        pytest.skip("no memory.reclaim: Linux before 5.19")
    hole = tmp_path / "hole"
    with hole.open("wb") as stream:
        stream.truncate(256 * MIB)
    process = pod.spawn([sys.executable, "-S", "-c", BUSY, str(hole), str(64 * MIB)])
    limit, taken = stands(pod, Knob.MEMORY_MAX), 0
    turns, deadline = 0, time.monotonic() + 150
    while turns < 40 or taken <= 10:
        assert time.monotonic() < deadline, f"memory was taken {taken} times in {turns} turns"
        intent = Reclaim(strategy="calm", target=pod.path, reason="because", amount_bytes=64 * MIB)
        (event,) = enforcer.step([intent])
        if event.outcome == Outcome.OVER_BUDGET:  # an emulated machine allocates slowly: more than a minute's turns
            time.sleep(1.0)
            continue
        assert event.outcome == Outcome.RECLAIMED
        turns += 1
        taken += "no more than 0 bytes" not in event.reason
        time.sleep(0.05)
    assert stands(pod, Knob.MEMORY_MAX) == limit
    assert process.poll() is None
    assert len(pod.pids()) == 2
    assert oom_kills(pod) == 0


def oom_kills(pod: TestCgroup) -> int:
    name = "memory.oom_control" if pod.tree.version == "v1" else "memory.events"
    words = (pod.memory_dir / name).read_text().split()
    return int(words[words.index("oom_kill") + 1])


def score_of(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()


def test_every_process_gets_its_score_and_late_comers_too(pod: TestCgroup, enforcer: Enforcer) -> None:
    first = sleeper(pod)
    intent = want(pod, Knob.OOM_SCORE_ADJ, "500")
    enforcer.step([intent])
    assert score_of(first) == "500"
    second = sleeper(pod)
    enforcer.step([intent])
    assert score_of(second) == "500"
    Path(f"/proc/{second.pid}/oom_score_adj").write_text("900")
    enforcer.step([intent])
    enforcer.close()
    assert (score_of(first), score_of(second)) == ("0", "900")


def test_processes_that_another_program_sets_apart_stay(pod: TestCgroup, enforcer: Enforcer) -> None:
    first, second = sleeper(pod), sleeper(pod)
    Path(f"/proc/{second.pid}/oom_score_adj").write_text("900")
    events = enforcer.step([want(pod, Knob.OOM_SCORE_ADJ, "500")])
    assert [event.outcome for event in events] == [Outcome.REFUSED]
    assert (score_of(first), score_of(second)) == ("0", "900")


def now(seconds: float) -> Clocks:
    return Clocks(1000.0 + seconds, time.time())


def test_evicting_asks_first_and_kills_after_the_grace(pod: TestCgroup, enforcer: Enforcer) -> None:
    with pod.make_cgroup("one") as one, pod.make_cgroup("other") as other:
        polite = sleeper(one)
        deaf = sleeper(other, "trap '' TERM; while :; do sleep 1; done")
        wait_for(lambda: ignores_sigterm(deaf))
        evict = Evict(strategy="calm", target=pod.path, reason="because", grace_seconds=5.0)
        events = enforcer.step([evict], now=now(0))
        assert [event.outcome for event in events] == [Outcome.TERMINATED]
        assert polite.wait(60) != 0
        assert enforcer.step([], now=now(4)) == []
        assert deaf.poll() is None
        events = enforcer.step([], now=now(6))
        assert [event.outcome for event in events] == [Outcome.KILLED]
        assert deaf.wait(60) == -9
        wait_for(lambda: not one.pids() and not other.pids())
        assert enforcer.step([], now=now(7)) == []


def test_what_is_to_end_is_not_kept_frozen(pod: TestCgroup, enforcer: Enforcer) -> None:
    with beside(pod, "freezer") as directory:
        process = sleeper(pod)
        (directory / "cgroup.procs").write_text(str(process.pid))
        intents: list[Intent] = [want(pod, Knob.FREEZE, "1")]
        enforcer.step(intents, now=now(0))
        intents.append(Evict(strategy="calm", target=pod.path, reason="because", grace_seconds=1.0))
        enforcer.step(intents, now=now(1))
        events = enforcer.step(intents, now=now(3))
        assert [event.outcome for event in events if event.knob == "cgroup.freeze"] == [
            Outcome.CONFLICT,
            Outcome.RESTORED,
        ]
        process.wait(60)


def test_an_eviction_waits_for_the_cool_down(pod: TestCgroup, tmp_path: Path) -> None:
    enforcer = open_enforcer(settings(tmp_path, evict_cooldown_seconds=30.0), HOST)
    with pod.make_cgroup("one") as one, pod.make_cgroup("two") as two:
        first, second = sleeper(one), sleeper(two)
        intents: list[Intent] = [Evict(strategy="calm", target=cgroup.path, reason="x") for cgroup in (one, two)]
        events = enforcer.step(intents, now=now(0))
        assert [event.outcome for event in events] == [Outcome.TERMINATED, Outcome.COOLDOWN]
        first.wait(60)
        assert second.poll() is None
        wait_for(lambda: not one.pids())
        enforcer.step(intents, now=now(31))
        second.wait(60)
    enforcer.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"tmpfs cannot be mounted: {done.stderr.decode()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=False)


def fill(directory: Path) -> Path:
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"x" * 512)
        except OSError:
            return ballast


def test_a_full_disk_changes_nothing_and_loses_nothing(pod: TestCgroup, small_disk: Path) -> None:
    chosen = settings(small_disk)
    enforcer = open_enforcer(chosen, HOST)
    enforcer.step([want(pod, Knob.CPU_MAX, "20000 100000")])
    ballast = fill(small_disk)
    intents: list[Intent] = [want(pod, Knob.CPU_MAX, "20000 100000"), want(pod, Knob.CPU_WEIGHT, "5")]
    before = stands(pod, Knob.CPU_WEIGHT)
    for _ in range(40):  # more than what is left in the journal's last page
        events = enforcer.step(intents)
        enforcer.step(intents[:1])
    assert [event.outcome for event in events if event.knob == "cpu.weight"] == [Outcome.JOURNAL_UNAVAILABLE]
    assert stands(pod, Knob.CPU_WEIGHT) == before
    assert enforcer.counts["", "journal", "failed"] > 0
    assert enforcer.counts["", "audit", "lost"] > 0
    ballast.unlink()
    assert failures(enforcer.step(intents)) == []
    assert stands(pod, Knob.CPU_WEIGHT) != before
    fill(small_disk)
    enforcer.close()
    assert stands(pod, Knob.CPU_WEIGHT) == before
    assert restore(chosen, HOST) == [] or all(event.outcome == Outcome.UNCHANGED for event in restore(chosen, HOST))
    for line in (small_disk / "audit.jsonl").read_text().splitlines():
        json.loads(line)


STORY = """
import json, sys
from pathlib import Path
from koordlet.config import EnforcerSettings
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.files import HostTree
from api.intents import Evict, Knob, Reclaim, Setting

state, resctrl, target, dry = sys.argv[1:]
def want(knob, value, target=target):
    return Setting(strategy="calm", target=target, knob=knob, value=value, reason="because")
settings = EnforcerSettings(
    enabled=True, strategies=("*",), evict=True, dry_run=dry == "dry", state_dir=state + "/state",
    audit_file=state + f"/audit-{dry}.jsonl",
)
tree = HostTree()
enforcer = open_enforcer(settings, tree, knobs=Knobs(tree, Path(resctrl)))
first = [
    want(Knob.CPU_MAX, "20000 50000"), want(Knob.CPU_BURST, "5000"), want(Knob.CPU_IDLE, "1"),
    want(Knob.MEMORY_MAX, "104857600"), want(Knob.MEMORY_LOW, "4096"), want(Knob.OOM_SCORE_ADJ, "400"),
    want(Knob.RESCTRL_SCHEMATA, "L3:0=3;1=3", "squeezed"), want(Knob.RESCTRL_GROUP, "squeezed"),
    want(Knob.CPU_WEIGHT, "7", "/no/such/cgroup"), want(Knob.CPU_MAX, "0", "/"), want(Knob.CPU_WEIGHT, "5", "/"),
]
enforcer.step(first)
enforcer.step(first)
enforcer.step([Reclaim(strategy="calm", target=target, reason="because", amount_bytes=4096)])
if dry == "dry":
    enforcer.step([Evict(strategy="calm", target=target, reason="because", grace_seconds=0.0)])
    enforcer.step([])
enforcer.close()
"""
_WRITING_OPEN = re.compile(r"open(?:at2?)?\(.*?\"(?P<path>[^\"]+)\".*?(?:O_WRONLY|O_RDWR|O_CREAT|O_TRUNC)")
_CHANGING_CALL = re.compile(
    r"(?P<call>mkdir|rmdir|unlink|rename|truncate|link|kill|pidfd_send_signal)\w*\((?P<rest>.*)"
)


def changes_in(trace: str, state: Path) -> list[str]:
    """Return the paths that a traced run changed or opened for writing, less its own audit and Python's caches."""
    found = []
    for line in trace.splitlines():
        opened = _WRITING_OPEN.search(line)
        changed = _CHANGING_CALL.search(line)
        if (opened or changed) and "= -1 " not in line:
            found.append(line)
    return [line for line in found if "__pycache__" not in line and f"{state}/audit" not in line]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")
def test_a_dry_run_writes_nothing_and_tells_what_a_wet_one_does(pod: TestCgroup, tmp_path: Path) -> None:
    from tests.resctrl_fs.client import mounted
    from tests.resctrl_fs.hardware import INTEL

    process = sleeper(pod)
    script = tmp_path / "story.py"
    script.write_text(STORY)
    state = tmp_path / "run"
    state.mkdir()
    with mounted(INTEL, tmp_path / "resctrl") as fs:
        arguments = [sys.executable, str(script), str(state), str(fs.path), pod.path]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
        trace = tmp_path / "trace"
        calls = "open,openat,openat2,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,truncate,ftruncate"
        tracer = [
            "strace",
            "-f",
            "--seccomp-bpf",  # stops at what is traced alone, not at every call
            "-y",
            "-s",
            "256",
            "-o",
            str(trace),
            "-e",
            f"trace={calls},link,linkat,kill,pidfd_send_signal",
        ]
        subprocess.run([*tracer, *arguments, "dry"], env=environment, check=True, timeout=120)
        assert changes_in(trace.read_text(), state) == []
        assert not (state / "state").exists()
        assert process.poll() is None
        subprocess.run([*tracer, *arguments, "wet"], env=environment, check=True, timeout=120)
        wet_changes = changes_in(trace.read_text(), state)
        assert any(pod.path in line for line in wet_changes), "the trace sees what a wet run writes"
    dry, wet = (
        [json.loads(line) for line in (state / f"audit-{kind}.jsonl").read_text().splitlines()]
        for kind in ("dry", "wet")
    )
    ended = [line for line in dry if line["to"] == "0 processes"]
    assert [line["outcome"] for line in ended] == ["terminated", "killed"]
    dry = [line for line in dry if line not in ended]
    assert {line.pop("dry_run") for line in dry} == {True}
    assert {line.pop("dry_run") for line in wet} == {False}
    for line in (*dry, *wet):
        del line["time"]
        if line["outcome"] == "reclaimed":  # how much a wet run gets is seen afterwards
            line["reason"] = line["reason"].partition(";")[0]
        if line["outcome"] == "restored" and line["file"].endswith("cpu.weight"):  # of an idle cgroup: 0 or 1
            del line["from"]
    assert dry == wet
    assert {"set", "restored", "refused", "gone"} <= {line["outcome"] for line in dry}


def koordlet_restore(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "koordlet", "restore", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_puts_back_what_a_killed_run_left(pod: TestCgroup, tmp_path: Path) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[enforcer]\nstate_dir = "{tmp_path}/state"\naudit_file = "{tmp_path}/audit.jsonl"\n')
    before = stands(pod, Knob.CPU_MAX)
    journal = Journal(tmp_path / "state", boot_id(HOST))
    running = open_enforcer(settings(tmp_path), HOST, journal=journal)
    running.step([want(pod, Knob.CPU_MAX, "20000 100000"), want(pod, Knob.CPU_WEIGHT, "5")])
    refused = koordlet_restore(config)
    assert (refused.returncode, stands(pod, Knob.CPU_MAX) != before) == (1, True)
    assert "stop it first" in refused.stderr
    journal.close()  # as the kernel does for a killed process
    done = koordlet_restore(config)
    assert (done.returncode, stands(pod, Knob.CPU_MAX)) == (0, before), done.stderr
    assert "2 put back, 0 failed" in done.stdout
    assert "0 put back" in koordlet_restore(config).stdout


def test_a_cgroup_made_again_is_another(tree: CgroupTree, enforcer: Enforcer) -> None:
    with tree.make_cgroup("phoenix") as first:
        enforcer.step([want(first, Knob.CPU_MAX, "20000 100000")])
    with tree.make_cgroup("phoenix") as second:
        second.set_cpu_quota(20_000)
        events = enforcer.step([])
        assert {event.outcome for event in events} == {Outcome.GONE}
        assert stands(second, Knob.CPU_MAX)[0].startswith("20000")


def test_the_agents_own_cgroup_is_protected(pod: TestCgroup, tmp_path: Path) -> None:
    pod.add(os.getpid())
    enforcer = open_enforcer(settings(tmp_path), HOST)
    events = enforcer.step(
        [want(pod, Knob.CPU_MAX, "20000"), Evict(strategy="calm", target=pod.path, reason="because")],
        (CgroupInfo(1, pod.path, "own", "BE"),),
    )
    assert {event.outcome for event in events} == {Outcome.PROTECTED}
    enforcer.close()


def state(knob: Knob, value: str, pod: TestCgroup) -> Setting:
    return Setting(strategy="hooks", target=pod.path, reason="because", knob=knob, value=value, protocol_state=True)


def test_idle_over_the_weight_of_the_protocol_and_back(pod: TestCgroup, tmp_path: Path) -> None:
    name = "cpu.weight" if pod.tree.version == "v2" else "cpu.shares"
    before = (pod.cpu_dir / name).read_text()
    first = open_enforcer(settings(tmp_path), HOST)
    weight = state(Knob.CPU_WEIGHT, "7", pod)
    idle = Setting(strategy="calm", target=pod.path, reason="because", knob=Knob.CPU_IDLE, value="1")
    first.step([weight])
    given = (pod.cpu_dir / name).read_text()
    first.step([weight, idle])
    assert (pod.cpu_dir / "cpu.idle").read_text().strip() == "1"
    first.close()
    assert ((pod.cpu_dir / "cpu.idle").read_text().strip(), (pod.cpu_dir / name).read_text()) == ("0", given)
    second = open_enforcer(settings(tmp_path), HOST)
    second.step([weight, idle])
    second.step([weight])
    assert (pod.cpu_dir / name).read_text() == given
    second.step([state(Knob.CPU_MAX, "50000 100000", pod)])
    assert (pod.cpu_dir / name).read_text() == before
    second.step([])
    second.close()


def test_a_cgroup_made_under_a_narrow_list_ends_with_the_wide_one(tree: CgroupTree, tmp_path: Path) -> None:
    if tree.version == "v2":
        pytest.skip("on cgroup v2 a new cgroup has no list of its own")
    with tree.make_cgroup("narrow") as pods, beside(pods, "cpuset") as upper:
        for name, text in {"cpuset.mems": "0", "cpuset.cpus": "0-1", "cgroup.clone_children": "1"}.items():
            (upper / name).write_text(text)
        narrow = want(pods, Knob.CPUSET_CPUS, "0")
        enforcer = open_enforcer(settings(tmp_path), HOST)
        parent = cgroup_info(1, pods.path)
        try:
            enforcer.step([narrow], [parent])
            with pods.make_cgroup("born") as born, beside(born, "cpuset") as lower:
                assert (lower / "cpuset.cpus").read_text().strip() == "0"
                enforcer.step([narrow], [parent, cgroup_info(2, born.path)])
                assert failures(enforcer.step([])) == []
                assert (lower / "cpuset.cpus").read_text().strip() == "0-1"
                assert (upper / "cpuset.cpus").read_text().strip() == "0-1"
        finally:
            enforcer.close()
