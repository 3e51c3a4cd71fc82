"""Test cgroups on any host: cgroup v1, hybrid and v2 look the same from here.

    tree = CgroupTree.detect()
    with tree.make_cgroup("victim") as victim, victim.make_cgroup("container") as container:
        container.set_cpu_quota(20_000, 100_000)
        child = container.spawn(["stress-ng", "--cpu", "1"], cpus="0")

Every cgroup has the same path in each hierarchy that holds one of the controllers below, and in the
unified hierarchy of a hybrid host (where PSI lives). Leaving the context kills what runs inside and removes
the directories.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Literal, Self

CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio", "pids", "perf_event")
V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
REMOVE_TIMEOUT_SECONDS = 20.0
PREFIX = "koord-test"

# Joins each cgroup.procs named before "--", then becomes the command: no Python runs between fork and exec.
_JOIN_AND_EXEC = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'

_existing: list["TestCgroup"] = []


def _unescape(field_text: str) -> str:
    return field_text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _write(path: Path, text: str) -> None:
    """One write(2), so that a refusal of the kernel surfaces as OSError with the file's name."""
    try:
        with path.open("w") as stream:
            stream.write(text)
    except OSError as error:
        raise OSError(error.errno, f"writing {text!r}: {error.strerror}", str(path)) from error


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """The mounted hierarchies: `mounts` maps a v1 controller name, or "unified", to its mount point."""

    version: Literal["v1", "v2"]
    mounts: dict[str, Path]

    @classmethod
    def detect(cls, mounts_file: Path = Path("/proc/self/mounts")) -> Self:
        """Read the mount table; the version is that of the cpu controller.

        Raises RuntimeError where no cpu controller is mounted.
        """
        mounts: dict[str, Path] = {}
        for line in mounts_file.read_text().splitlines():
            _, target, kind, options = line.split()[:4]
            if kind == "cgroup2":
                mounts.setdefault("unified", Path(_unescape(target)))
            elif kind == "cgroup":
                for controller in set(options.split(",")).intersection(CONTROLLERS):
                    mounts.setdefault(controller, Path(_unescape(target)))
        if "cpu" in mounts:
            return cls("v1", mounts)
        unified = mounts.get("unified")
        if unified is None or "cpu" not in (unified / "cgroup.controllers").read_text().split():
            raise RuntimeError(f"no cpu controller among the cgroup mounts of {mounts_file}")
        return cls("v2", {"unified": unified})

    @property
    def is_hybrid(self) -> bool:
        """Return whether the unified hierarchy is mounted beside v1 controllers."""
        return self.version == "v1" and "unified" in self.mounts

    def mount_of(self, controller: str) -> Path:
        """Return the mount point of the hierarchy that holds `controller` ("unified" included).

        Raises LookupError where no hierarchy holds it.
        """
        found = self.mounts.get(controller) or (self.mounts["unified"] if self.version == "v2" else None)
        if found is None:
            raise LookupError(f"no cgroup hierarchy mounts the {controller} controller")
        return found

    def make_cgroup(self, name: str, parent: "TestCgroup | None" = None) -> "TestCgroup":
        """Make `/koord-test-<pid>-<name>`, or `<parent>/<name>`, in every hierarchy."""
        if not _existing:
            self.remove_orphans()
        path = f"{parent.path}/{name}" if parent else f"/{PREFIX}-{os.getpid()}-{name}"
        cgroup = TestCgroup(self, path, parent)
        _existing.append(cgroup)
        cgroup.create()
        return cgroup

    def remove_orphans(self) -> None:
        """Remove what test runs left behind that were killed: top cgroups named after a process that is gone."""
        for mount_point in dict.fromkeys(self.mounts.values()):
            for directory in mount_point.glob(f"{PREFIX}-*"):
                owner = directory.name.removeprefix(f"{PREFIX}-").partition("-")[0]
                if owner.isdigit() and not Path("/proc", owner).exists():
                    _remove_tree(directory)


@dataclass(slots=True, eq=False)
class TestCgroup:
    """One cgroup, at `path` below every mount point of its tree. A context manager that removes it."""

    __test__: ClassVar[bool] = False

    tree: CgroupTree
    path: str
    parent: "TestCgroup | None" = None
    children: list["TestCgroup"] = field(default_factory=list)
    _processes: list[subprocess.Popen[Any]] = field(default_factory=list)
    _moved_in: dict[int, dict[Path, str]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def make_cgroup(self, name: str) -> "TestCgroup":
        """Make a child of this cgroup."""
        return self.tree.make_cgroup(name, self)

    def create(self) -> None:
        """Make the directories; on v2, pass every controller down from the parent first."""
        if self.parent:
            self.parent.children.append(self)
        if self.tree.version == "v2":
            self._pass_controllers_down(self.parent.cpu_dir if self.parent else self.tree.mounts["unified"])
        for directory in self.dirs:
            directory.mkdir(exist_ok=True)

    @staticmethod
    def _pass_controllers_down(directory: Path) -> None:
        offered = (directory / "cgroup.controllers").read_text().split()
        wanted = " ".join(f"+{name}" for name in V2_CONTROLLERS if name in offered)
        _write(directory / "cgroup.subtree_control", wanted)

    @property
    def dirs(self) -> list[Path]:
        """The directory in each distinct hierarchy."""
        mount_points = dict.fromkeys(self.tree.mounts.values())
        return [self._below(mount_point) for mount_point in mount_points]

    def _below(self, mount_point: Path) -> Path:
        return mount_point / self.path.lstrip("/")

    def dir_of(self, controller: str) -> Path:
        """Return the directory in the hierarchy that holds `controller`."""
        return self._below(self.tree.mount_of(controller))

    @property
    def cpu_dir(self) -> Path:
        return self.dir_of("cpu")

    @property
    def memory_dir(self) -> Path:
        return self.dir_of("memory")

    @property
    def blkio_dir(self) -> Path:
        return self.dir_of("blkio")

    @property
    def unified_dir(self) -> Path | None:
        """The directory in the unified hierarchy (PSI files, cgroup.kill), or None on a pure v1 host."""
        return self.dir_of("unified") if "unified" in self.tree.mounts else None

    @property
    def cgroup_id(self) -> int:
        """The kernel's id of the cpu cgroup: the inode number of its directory."""
        return self.cpu_dir.stat().st_ino

    def set_cpu_quota(self, quota_us: int | None, period_us: int = 100_000) -> None:
        """Limit CPU time per period; None lifts the limit."""
        if self.tree.version == "v2":
            _write(self.cpu_dir / "cpu.max", f"{'max' if quota_us is None else quota_us} {period_us}")
            return
        _write(self.cpu_dir / "cpu.cfs_period_us", str(period_us))
        _write(self.cpu_dir / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Set the hard limit; None lifts it."""
        if self.tree.version == "v2":
            _write(self.memory_dir / "memory.max", "max" if limit_bytes is None else str(limit_bytes))
            return
        _write(self.memory_dir / "memory.limit_in_bytes", str(-1 if limit_bytes is None else limit_bytes))

    def set_io_limit(self, dev: str, rbps: int | None = None, wbps: int | None = None) -> None:
        """Limit bytes per second of `dev` ("major:minor" or a path under /dev); None means no limit."""
        device = device_number(dev)
        if self.tree.version == "v2":
            _write(self.blkio_dir / "io.max", f"{device} rbps={rbps or 'max'} wbps={wbps or 'max'}")
            return
        # On v1 a rate of 0 removes the rule.
        _write(self.blkio_dir / "blkio.throttle.read_bps_device", f"{device} {rbps or 0}")
        _write(self.blkio_dir / "blkio.throttle.write_bps_device", f"{device} {wbps or 0}")

    def spawn(
        self,
        argv: Sequence[str],
        cpus: str | None = None,
        *,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.DEVNULL,
        stderr: int | IO[Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `argv` inside, optionally on the CPU list `cpus` ("0" or "0,2-3").

        The process joins before it becomes `argv`, so all that `argv` does is charged here. It starts
        a session of its own. Exit status 125 means that joining was refused.
        """
        pinned = ["taskset", "-c", cpus, *argv] if cpus is not None else list(argv)
        gates = [str(directory / "cgroup.procs") for directory in self.dirs]
        process = subprocess.Popen(
            ["/bin/sh", "-c", _JOIN_AND_EXEC, "join", *gates, "--", *pinned],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def add(self, pid: int) -> None:
        """Move a running process in. The test's own process is moved back by `remove`, others are killed."""
        if pid == os.getpid() and pid not in self._moved_in:
            self._moved_in[pid] = self._present_cgroups(pid)
        for directory in self.dirs:
            _write(directory / "cgroup.procs", str(pid))

    @contextlib.contextmanager
    def visited_by(self, pid: int) -> Iterator[None]:
        """Move in a running process that must not be killed, a kernel thread for one, and move it back at the end."""
        self._moved_in[pid] = self._present_cgroups(pid)
        try:
            self.add(pid)
            yield
        finally:
            self._move_back()

    def _present_cgroups(self, pid: int) -> dict[Path, str]:
        """Map each mount point to the process's path below it."""
        present: dict[Path, str] = {}
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            hierarchy, controllers, path = line.split(":", 2)
            for name in ["unified"] if hierarchy == "0" else controllers.split(","):
                if name in self.tree.mounts:
                    present[self.tree.mounts[name]] = path
        return present

    def pids(self) -> list[int]:
        """List the processes inside, in any of the hierarchies."""
        found: set[int] = set()
        for directory in self.dirs:
            with contextlib.suppress(FileNotFoundError):
                found.update(int(word) for word in (directory / "cgroup.procs").read_text().split())
        return sorted(found)

    def remove(self) -> None:
        """Remove children first, empty the cgroup, and remove its directories. Safe to call twice."""
        for child in list(self.children):
            child.remove()
        self._move_back()
        deadline = time.monotonic() + REMOVE_TIMEOUT_SECONDS
        while not self._try_remove():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.cpu_dir}: still busy, processes {self.pids()}")
            time.sleep(0.01)
        for process in self._processes:
            process.wait()
        if self.parent and self in self.parent.children:
            self.parent.children.remove(self)
        if self in _existing:
            _existing.remove(self)

    def _move_back(self) -> None:
        for pid, homes in self._moved_in.items():
            for mount_point, path in homes.items():
                with contextlib.suppress(ProcessLookupError):
                    _write(mount_point / path.lstrip("/") / "cgroup.procs", str(pid))
        self._moved_in.clear()

    def _try_remove(self) -> bool:
        for process in self._processes:
            process.poll()
        return all(_remove_tree(directory) for directory in self.dirs)


def _remove_tree(directory: Path) -> bool:
    """Remove a cgroup and what was made below it, killing what runs there; False while something is busy."""
    try:
        is_empty = all(_remove_tree(path) for path in directory.iterdir() if path.is_dir())
        for pid in (directory / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if is_empty:
            directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return is_empty


def device_number(dev: str) -> str:
    """Return "major:minor" of a block device path; numbers pass through."""
    if not dev.startswith("/"):
        return dev
    number = Path(dev).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


@atexit.register
def _remove_leftovers() -> None:
    for cgroup in reversed(list(_existing)):
        with contextlib.suppress(OSError):
            cgroup.remove()
