"""All that a scenario may use: cgroups by role, loads in them, time that passes while the product watches."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from api.verdicts import Verdict
from bench.detect import loads
from bench.detect.disk import Disk, mounted_disk, served_file
from bench.detect.measures import USAGE, Meter, Sample, measure
from bench.detect.namespaces import Namespaces
from bench.detect.pod_network import PodNetwork
from bench.detect.subject import Subject
from tests.cgroups import CgroupTree, TestCgroup

SETTLE_SECONDS = 7.0
"""A load that has just started is no ordinary time yet; correlation wants some ticks without harm too."""
HARM_SECONDS = 10.0
RECOVER_SECONDS = 4.0
SAMPLE_SECONDS = 1.0

_START_ALL = """
import json, os, sys
cpu, argv = int(sys.argv[1]), sys.argv[2:]
for gates in json.load(sys.stdin):
    if os.fork() == 0:
        for gate in gates:
            with open(gate, "w") as stream:
                stream.write(str(os.getpid()))
        os.sched_setaffinity(0, {cpu})
        os.execvp(argv[0], argv)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""

_MEMINFO, _HUGE_PAGES = Path("/proc/meminfo"), Path("/proc/sys/vm/nr_hugepages")
SHARED_MEMORY = Path("/dev/shm")


def memory_bytes() -> dict[str, int]:
    """Return the node's memory by use, as /proc/meminfo names it, with the colon."""
    return {words[0]: int(words[1]) << 10 for words in map(str.split, _MEMINFO.read_text().splitlines())}


@contextmanager
def _restored_at_any_end(path: Path, text: str) -> Iterator[None]:
    """Write `text` at the end, even if this process is killed: a shell waits for its pipe to break."""
    argv = ["/bin/sh", "-c", 'cat > /dev/null; echo "$1" > "$2"', "restore", text, str(path)]
    waiting = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        waiting.communicate()


class Stage:
    """One run of one scenario. A context manager that leaves nothing behind."""

    def __init__(self, name: str, subject: Subject) -> None:
        self.cpus = sorted(os.sched_getaffinity(0))
        self.verdicts: list[Verdict] = []
        """Verdicts of the product, each with its time of arrival."""
        self.samples: list[Sample] = []
        self.harmed: tuple[float, float] | None = None
        self.started = time.time()
        self.paths: dict[str, str] = {}
        self.meter = Meter()
        self._subject = subject
        self._cgroups: dict[str, TestCgroup] = {}
        self._many: dict[str, list[TestCgroup]] = {}
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._stack = ExitStack()
        self._top = self._stack.enter_context(CgroupTree.detect().make_cgroup(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for role in self._cgroups:
                self.stop(role)
        finally:
            self._stack.close()

    @property
    def near(self) -> str:
        """The CPU on which the victim lives."""
        return str(self.cpus[-1])

    @property
    def far(self) -> str:
        """Another CPU."""
        return str(self.cpus[0])

    @property
    def prefix(self) -> str:
        """Path of the cgroup that holds all roles."""
        return self._top.path

    def used_seconds(self) -> float:
        """CPU time of all roles so far, those that are gone included."""
        return measure(self._top)[USAGE]

    def cgroup(self, role: str) -> TestCgroup:
        """The cgroup of a role, made at its first use; `pod/container` is below `pod`."""
        if role not in self._cgroups:
            parent, _, name = role.rpartition("/")
            made = (self.cgroup(parent) if parent else self._top).make_cgroup(name)
            self._cgroups[role], self.paths[role] = made, made.path
            self.meter.watch(role, made)
        return self._cgroups[role]

    def set_cpu_weight(self, role: str, shares: int) -> None:
        """CPU weight against its neighbours, in shares (1024 is usual)."""
        cgroup = self.cgroup(role)
        if cgroup.tree.version == "v2":
            # The kernel's own conversion: shares 2..262144 onto weights 1..10000.
            (cgroup.cpu_dir / "cpu.weight").write_text(str(1 + (shares - 2) * 9999 // 262142))
        else:
            (cgroup.cpu_dir / "cpu.shares").write_text(str(shares))

    def set_cpu_idle(self, role: str) -> None:
        """Make it run only where no other task wants the CPU."""
        (self.cgroup(role).cpu_dir / "cpu.idle").write_text("1")

    def start(self, role: str, argv: Sequence[str], cpu: str, *, namespace: str = "") -> subprocess.Popen[bytes]:
        """Start a load as a role, on one CPU, its talk thrown away."""
        within = ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []
        process = self.cgroup(role).spawn([*within, *argv], cpus=cpu, stderr=subprocess.DEVNULL)
        self._running.setdefault(role, []).append(process)
        return process

    def check_running(self) -> None:
        """Raises LoadEndedError where a load that was started, and not stopped, has ended."""
        for role, processes in self._running.items():
            for process in processes:
                loads.check_running(role, process)

    def stop(self, role: str) -> None:
        """End all that runs as a role, and as one of its many; its cgroup stays."""
        self._running.pop(role, None)
        cgroups = [self.cgroup(role), *self._many.get(role, ())]
        deadline = time.monotonic() + 5
        while (pids := [pid for cgroup in cgroups for pid in cgroup.pids()]) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def remove(self, role: str) -> None:
        """End a role and remove its cgroup."""
        self.meter.forget(role)
        self._running.pop(role, None)
        self._cgroups.pop(role).remove()

    @contextmanager
    def harm(self, began: float | None = None) -> Iterator[None]:
        """Within it, the claimed loss happens; the first process started in it marks the onset, unless it `began`
        earlier (seconds of the wall clock)."""
        self._sample()
        onset = time.time() if began is None else began
        yield
        self._sample()
        self.harmed = (onset, time.time())

    def wait(self, seconds: float) -> None:
        """Let time pass; the product judges and the meter samples meanwhile."""
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0:
            due = self.samples[-1].time + SAMPLE_SECONDS - time.time() if self.samples else 0.0
            self.verdicts += self._subject.poll(max(min(rest, due), 0.0))
            if not self.samples or self.samples[-1].time + SAMPLE_SECONDS <= time.time():
                self._sample()

    def until(self, condition: Callable[[], bool], seconds: float = 15.0) -> None:
        """Wait for a load to be ready. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("a load did not get ready")
            self.wait(0.05)

    def folder(self, below: Path | None = None) -> Path:
        """A directory that goes with the scenario, among the temporary ones by default."""
        made = Path(tempfile.mkdtemp(prefix=f"koord-detect-{os.getpid()}-", dir=below))
        self._stack.callback(shutil.rmtree, made, ignore_errors=True)
        return made

    def disk(self, spread: float | None = None) -> Disk:
        """A slow disk with a file system, of many arms with a `spread`. Raises OSError where there can be none."""
        return self._stack.enter_context(mounted_disk(self.folder(), self.far, spread))

    def served_file(self) -> tuple[Path, int]:
        """A big file of a slow file system in user space, and the process that serves it."""
        return self._stack.enter_context(served_file(self.folder(), self.far))

    def start_many(self, role: str, count: int, argv: Sequence[str], cpu: str) -> None:
        """Start so many processes, each in a cgroup of its own below the role, `job-0` and so on; they are not sampled.

        Cgroups that are there already take them at once. To start hundreds costs seconds of CPU time, so it is one of
        the role's own cgroups that does it, `job-starter`.
        """
        jobs = self.make_many(role, count)
        starter = self.cgroup(role).make_cgroup("job-starter")
        self._many[role].append(starter)
        gates = [[str(directory / "cgroup.procs") for directory in job.dirs] for job in jobs]
        command = [sys.executable, "-S", "-E", "-c", _START_ALL, cpu, *argv]
        process = starter.spawn(command, cpus=self.far, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps(gates).encode())

    def make_many(self, role: str, count: int) -> list[TestCgroup]:
        """The cgroups of `start_many`, made at the first call."""
        parent = self.cgroup(role)
        made = self._many.setdefault(role, [])
        made += [parent.make_cgroup(f"job-{number}") for number in range(len(made), count)]
        return made[:count]

    def namespaces(self) -> Namespaces:
        """Two network namespaces and the wire between them."""
        return self._stack.enter_context(Namespaces.made())

    def pod_network(self, *pods: str) -> PodNetwork:
        """A node's namespace with a namespace for each of these pods, and the world."""
        return self._stack.enter_context(PodNetwork.made(pods))

    def leave_memory(self, bytes_left: int) -> None:
        """Take the node's memory away, but for so much, until the scenario ends. Raises OSError without huge pages.

        A node that has been up for a while finds few huge pages: what these do not take is taken by a file in memory.
        """
        sizes = memory_bytes()
        pages = max(sizes["MemAvailable:"] - bytes_left, 0) // sizes["Hugepagesize:"]
        before = int(_HUGE_PAGES.read_text())
        self._stack.enter_context(_restored_at_any_end(_HUGE_PAGES, str(before)))
        _HUGE_PAGES.write_text(str(before + pages))
        rest = memory_bytes()["MemAvailable:"] - bytes_left
        if rest > 0:
            file = os.open(SHARED_MEMORY, os.O_TMPFILE | os.O_RDWR, 0o600)
            self._stack.callback(os.close, file)
            os.posix_fallocate(file, 0, rest)

    def _sample(self) -> None:
        self.samples.append(self.meter.sample())
