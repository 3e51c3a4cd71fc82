"""One round: a subject acts, is met by a fault at a random moment, and everything must be as it was found, in time."""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from api.plugin import Unsupported
from bench.faults.subject import SINKS, VALUES
from koordlet.enforcer.guardian.restoring import Left, restore_left
from koordlet.host.attributes import KernelFile, ProcessFiles
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from tests.cgroups import CgroupTree, TestCgroup
from tests.emulation import why_no_real_time
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 0.5
"""As the lease of the subject; the default of the settings is 30."""
LIMIT_SECONDS = LEASE_SECONDS + 5.0
_LONGEST_ACT_SECONDS = 0.3
_STAYS_SECONDS = 0.1
"""Longer than a tick: a subject that goes on may have been between two changes."""
_DISK_BYTES = 1 << 20
_CONFIG = """[enforcer]
enabled = true
strategies = ["*"]
changes_per_minute = 1000000
pod_changes_per_minute = 1000000
foreign_write_backoff_seconds = 1.0
state_dir = "{state}"
audit_file = "{audit}"
audit_bytes = 1073741824
stop_file = ""
max_limited_ratio = 1.0
max_frozen = 3
"""

KINDS = ("kill", "stop", "hang", "sink", "map", "hangup", "disk")
"""kill -9; kill -STOP; a hang in a tick; an exception in each sink and step; E2BIG of a map; SIGHUP; a full disk."""
_REFUSED = b"cannot watch all cgroups"
"""What the subject logs where the kernel's map is full."""
_HANGS = ("collect", "source", "control", "journal", "cluster")
_STEPS = ("collect", "control", "source")
"""Steps that fail in turn with the sinks: without them nothing renews the actions, so that these end."""


@dataclass(slots=True)
class Outcome:
    """Times of the rounds of one kind, and what went wrong."""

    kind: str
    seconds: list[float] = field(default_factory=list)
    set_attributes: int = 0
    """Attributes that were not as found when the fault came, over all rounds."""
    wrong: list[str] = field(default_factory=list)


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of one megabyte for state and audit."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


class Scene:
    """Cgroups with a process each, a small disk, and a subject that is started again when it is gone."""

    def __init__(self, tree: CgroupTree, directory: Path, disk: Path, seed: int, *, with_map: bool) -> None:
        """`with_map` gives the subject the kernel's tripwire, whose map can be full."""
        self.disk = disk
        self._with_map = with_map
        self._top = tree.make_cgroup("faults")
        _give_cpus(self._top)
        self._pods = [self._top.make_cgroup(name) for name in ("a", "b", "c")]
        for pod in self._pods:
            _give_cpus(pod)
            pod.spawn(["sleep", "100000"])
            wait_for(lambda pod=pod: pod.pids())  # type: ignore[misc]
        self._chance = random.Random(seed)
        self.log = directory / "subject.log"
        self.config = directory / "koordlet.toml"
        self.config.write_text(_CONFIG.format(state=disk / "state", audit=directory / "audit.jsonl"))
        self.audit = directory / "audit.jsonl"
        self.left = Left(str(disk / "state"), str(directory / "audit.jsonl"))
        self._process: subprocess.Popen[bytes] | None = None
        self._seed = seed
        self._attributes = list(self._found_attributes())
        self.originals = self.texts()

    def _found_attributes(self) -> Iterator[KernelFile | ProcessFiles]:
        knobs = Knobs(HostTree())
        for pod in self._pods:
            for knob, values in VALUES.items():
                with contextlib.suppress(Unsupported):
                    found = [each.attribute for each in knobs.assignments(knob, pod.path, values[0])]
                    files = [each for each in found if isinstance(each, KernelFile | ProcessFiles)]
                    # The weight is protocol state here, and stays.
                    yield from (each for each in files if not each.key.endswith(("cpu.shares", "cpu.weight")))

    def texts(self) -> dict[str, str]:
        """Texts of every attribute that actions change, by key."""
        return {each.key: ",".join(sorted(each.read() or ())) for each in self._attributes}

    def changed(self) -> int:
        """Number of attributes that are not as they were found."""
        return sum(text != self.originals[key] for key, text in self.texts().items())

    def act(self) -> subprocess.Popen[bytes]:
        """A subject that acts at this moment, which is a random one."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None
        self.say("well")
        wait_for(lambda: self.changed() > 3, 30.0, check=self._story)
        time.sleep(self._chance.uniform(0.0, _LONGEST_ACT_SECONDS))
        return process

    def _start(self) -> None:
        self._seed += 1
        given = {
            "config": str(self.config),
            "paths": [pod.path for pod in self._pods],
            "seed": self._seed,
            "lease_seconds": LEASE_SECONDS,
            "with_map": self._with_map,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.faults.subject", json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60.0)
        if not ready or not self._process.stdout.readline():
            raise RuntimeError(f"the subject does not start: {self._story()}")

    def _story(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def say(self, word: str) -> None:
        """Tell the subject to begin or end a fault."""
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(f"{word}\n".encode())
                process.stdin.flush()

    def choose(self, names: Sequence[str]) -> str:
        """One of them at random."""
        return self._chance.choice(list(names))

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with (self.disk / "ballast").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while True:
                stream.write(bytes(4096))

    def drain(self) -> None:
        """Make room again."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def end_subject(self) -> None:
        """Kill the subject, which may be stopped."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(30)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self) -> None:
        """End all, restore protocol state, remove the cgroups."""
        self.end_subject()
        self.drain()
        restore_left(self.left, HostTree(), everything=True, wait_seconds=30.0)
        self._top.remove()


def _whole_tree() -> CgroupTree:
    """The hierarchies of all knobs that the subject sets: on v1 those of CPU lists and of freezing, too."""
    tree, (mounts, _) = CgroupTree.detect(), find_mounts(HostTree())
    more = {name: mounts[name] for name in ("cpuset", "freezer") if name in mounts and tree.version == "v1"}
    return replace(tree, mounts=tree.mounts | more)


def _give_cpus(cgroup: TestCgroup) -> None:
    """On v1 no process can join a cgroup without CPUs and memory nodes of its own."""
    with contextlib.suppress(LookupError):
        directory = cgroup.dir_of("cpuset")
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = directory / name
            if file.exists() and not file.read_text().strip():
                file.write_text((directory.parent / name).read_text())


def play(scene: Scene, kind: str, number: int, outcome: Outcome) -> None:
    """Play one round and add it to the outcome."""
    process = scene.act()
    offset, outcome.set_attributes = _size(scene.audit), outcome.set_attributes + scene.changed()
    said = _size(scene.log)
    began = time.monotonic()
    after = _begin(scene, kind, number, process)
    least, taken = _calm_seconds(scene, began)
    left = [key for key, text in scene.texts().items() if text != scene.originals[key]]
    outcome.seconds.append(taken)
    name = f"{kind} {number} ({after})"
    if least > LIMIT_SECONDS and not left:
        outcome.wrong.append(f"{name}: all was restored, but after {taken:.2f} s")
    if left:
        outcome.wrong.append(f"{name}: {len(left)} attributes are not restored after {taken:.2f} s: {left[0]}")
    if kind == "map" and _REFUSED not in scene.log.read_bytes()[said:]:
        outcome.wrong.append(f"{name}: the map refused nothing, so that this was no fault")
    twice = restored_twice(scene.audit, offset)
    if twice:
        outcome.wrong.append(f"{name}: {len(twice)} attributes were restored twice: {twice[0]}")
    if after != "dead" and process.poll() is not None:
        outcome.wrong.append(f"{name}: the agent ended with {process.returncode}")
    _end(scene, kind, process)


def _calm_seconds(scene: Scene, began: float) -> tuple[float, float]:
    """Wait until all is as found, and stays so, or the limit is over.

    Returns the times of the last look that began while something was changed, and of the first after it that found
    nothing: on a busy machine this program itself may wait for seconds between two looks.
    """
    least = 0.0
    while True:
        at = time.monotonic() - began
        if scene.changed():
            least = at
            if at > LIMIT_SECONDS:
                return least, at
            time.sleep(0.005)
            continue
        taken = time.monotonic() - began
        time.sleep(_STAYS_SECONDS)
        if not scene.changed():
            return least, taken


def _begin(scene: Scene, kind: str, number: int, process: subprocess.Popen[bytes]) -> str:
    """Begin the fault; return `dead`, or what is wrong with the subject."""
    if kind == "kill":
        process.kill()
        return "dead"
    if kind == "stop":
        process.send_signal(signal.SIGSTOP)
        return "stopped"
    if kind == "hang":
        place = scene.choose(_HANGS)
        scene.say(f"hang {place}")
        return f"hangs in {place}"
    if kind == "disk":
        scene.fill()
        if number % 2:
            process.kill()
            return "dead"
        scene.say("calm")
        return "calm"
    if kind == "sink":
        place = [*SINKS, *_STEPS][number % (len(SINKS) + len(_STEPS))]
        scene.say(f"fail {place}")
        if place in _STEPS:
            return f"{place} fails"
        scene.say("calm")
        return f"{place} fails, then calm"
    if kind == "map":
        scene.say("fail map")
        time.sleep(_STAYS_SECONDS)
    elif kind == "hangup":
        process.send_signal(signal.SIGHUP)
    scene.say("calm")
    return "calm"


def _end(scene: Scene, kind: str, process: subprocess.Popen[bytes]) -> None:
    if kind == "stop":
        process.send_signal(signal.SIGCONT)
    scene.drain()
    if process.poll() is not None or kind == "kill":
        scene.end_subject()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def restored_twice(audit: Path, offset: int) -> list[str]:
    """Attributes that were restored again without being set in between, by the audit's lines after `offset`.

    The agent may be writing: where a line was under way at `offset` that line is left out, and so is an unfinished last
    one.
    """
    twice: list[str] = []
    restored: set[str] = set()
    if not audit.exists():
        return twice
    with audit.open("rb") as stream:
        stream.seek(max(offset - 1, 0))
        lines = stream.read().split(b"\n")
    for line in lines[1 if offset else 0 : -1]:
        found = json.loads(line)
        file = found.get("file", "")
        if found.get("strategy") != "response":
            continue
        if found["outcome"] == "set":
            restored.discard(file)
            if file.endswith("/cpu.idle"):  # with it the kernel changes the weight
                restored -= {file.replace("cpu.idle", name) for name in ("cpu.shares", "cpu.weight")}
        elif found["outcome"] == "restored":
            if file in restored:
                twice.append(file)
            restored.add(file)
    return twice


@contextmanager
def staged(directory: Path, seed: int, kind: str) -> Iterator[Scene]:
    """A scene on this machine for faults of one kind; needs root."""
    with small_disk(directory / "disk") as disk:
        scene = Scene(_whole_tree(), directory, disk, seed, with_map=kind == "map")
        try:
            yield scene
        finally:
            scene.close()


def is_possible() -> str:
    """Reason why no scene can be made here; empty if it can."""
    return why_no_real_time() or ("" if os.geteuid() == 0 and shutil.which("mount") else "needs root")
