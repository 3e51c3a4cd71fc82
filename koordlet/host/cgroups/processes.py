"""The processes of a cgroup and all below it: listing, signals, and a value that each process has in /proc."""

import errno
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EOPNOTSUPP)
_PASSES = 4


def pids_below(directory: Path) -> set[int]:
    """Processes of a cgroup and its descendants; empty if it is gone."""
    return _numbers_below(directory, ("cgroup.procs",))


def first_pid_below(directory: Path) -> int | None:
    """Lowest pid of the first cgroup from the top that has any; looks no further. None if none has."""
    for folder, _below, _files in os.walk(directory):
        if (pid := first_pid_in(folder)) is not None:
            return pid
    return None


def first_pid_in(folder: str) -> int | None:
    """Lowest pid of a cgroup's own processes; None if it has none or is gone."""
    return min(_numbers_in(folder, ("cgroup.procs",)) - {0}, default=None)


@contextmanager
def on_cpus_of(directory: Path) -> Iterator[None]:
    """Run this thread on the CPUs of a cgroup's first process meanwhile, if it may run on one of them.

    Work in the kernel on behalf of a cgroup, such as reclaim, cannot be preempted on many hosts: other tasks on that
    CPU wait for it. They should be the cgroup's own.
    """
    own = os.sched_getaffinity(0)
    theirs: set[int] = set()
    with suppress(OSError):
        if pid := first_pid_below(directory):
            theirs = os.sched_getaffinity(pid) & own
    if not theirs or theirs == own:
        yield
        return
    os.sched_setaffinity(0, theirs)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def tids_below(directory: Path) -> set[int]:
    """Threads of a cgroup and its descendants; empty if it is gone."""
    return _numbers_below(directory, ("cgroup.threads", "tasks"))


def _numbers_below(directory: Path, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for folder, _below, _files in os.walk(directory):
        found |= _numbers_in(folder, names)
    return found - {0}


def _numbers_in(folder: str, names: tuple[str, ...]) -> set[int]:
    """Numbers in the first of the files that is there."""
    for name in names:
        try:
            return set(map(int, Path(folder, name).read_text().split()))
        except OSError as error:
            if error.errno not in _GONE:
                raise
    return set()


def signal_below(directory: Path, number: int) -> int:
    """Signal every process below but this one; return their number.

    A process is held by its pidfd before its membership is read again, so that a recycled pid is never hit.
    """
    held: dict[int, int] = {}
    try:
        for pid in pids_below(directory) - {os.getpid()}:
            try:
                held[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        reached = 0
        for pid in pids_below(directory) & held.keys():
            try:
                signal.pidfd_send_signal(held[pid], number)
                reached += 1
            except ProcessLookupError:
                continue
        return reached
    finally:
        for fd in held.values():
            os.close(fd)


def kill_below(directory: Path) -> int:
    """Kill every process below, by cgroup.kill where there is one (cgroup v2); return their number."""
    present = len(pids_below(directory))
    if not _kernel_kills(directory):
        for _ in range(_PASSES):
            if not signal_below(directory, signal.SIGKILL):
                break
    return present


def _kernel_kills(directory: Path) -> bool:
    try:
        fd = os.open(directory / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False
    try:
        os.write(fd, b"1")
    finally:
        os.close(fd)
    return True


def values_below(directory: Path, proc: Path, name: str) -> frozenset[str]:
    """The distinct texts of `/proc/<pid>/<name>` below a cgroup."""
    found = set()
    for pid in pids_below(directory):
        with _process(proc, pid) as process:
            if process is not None:
                found.add(_read(process, name))
    return frozenset(found - {None})  # type: ignore[arg-type]


def set_values_below(directory: Path, proc: Path, name: str, value: str, expected: Collection[str]) -> None:
    """Write `/proc/<pid>/<name>` of the processes that have one of the `expected` texts."""
    for _ in range(_PASSES):
        with ExitStack() as stack:
            held = {pid: stack.enter_context(_process(proc, pid)) for pid in pids_below(directory)}
            # Membership is read again while each process is held: a pid used again is not below.
            inside = [fd for pid in pids_below(directory) if (fd := held.get(pid)) is not None]
            pending = [fd for fd in inside if (text := _read(fd, name)) in expected and text != value]
            for fd in pending:
                _write(fd, name, value)
        if not pending:
            return


@contextmanager
def _process(proc: Path, pid: int) -> Iterator[int | None]:
    """A descriptor that stays with the process, even if its pid is used again."""
    try:
        fd = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _read(process: int, name: str) -> str | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
        try:
            return os.read(fd, 256).decode().strip()
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return None


def _write(process: int, name: str, value: str) -> None:
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
        try:
            os.write(fd, f"{value}\n".encode())
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _GONE:
            raise
