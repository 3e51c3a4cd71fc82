"""A write that does not return is ended, whatever becomes of the one that began it."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.host.cgroups.timed_write import write_in_turns, write_within
from tests.waiting import wait_for


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The write end of a pipe that has no room."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, bytes(65536))
    os.set_blocking(write, True)
    yield write
    os.close(read)
    os.close(write)


def test_what_is_written_arrives(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as stream:
        write_within(1.0, stream.fileno(), b"4096")
    assert (tmp_path / "file").read_bytes() == b"4096"


@pytest.mark.parametrize("blocked", [(), (signal.SIGALRM,)], ids=["as-usual", "alarm-blocked"])
def test_time_is_up(full_pipe: int, blocked: tuple[signal.Signals, ...]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with pytest.raises(InterruptedError):
            write_within(0.02, full_pipe, b"4096")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)


def test_it_ends_where_its_parent_was_killed() -> None:
    """It holds what its parent had open, as the lock of a journal."""
    program = """
import os
from koordlet.host.cgroups.timed_write import write_within
_read, write = os.pipe()
os.set_blocking(write, False)
try:
    while True:
        os.write(write, bytes(65536))
except BlockingIOError:
    os.set_blocking(write, True)
print("full", flush=True)
write_within(0.2, write, b"4096")
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"full\n"
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    writer = wait_for(lambda: children.read_text().split(), interval_seconds=0.001)[0]
    parent.kill()
    parent.wait()
    wait_for(lambda: not Path(f"/proc/{writer}/fd/1").exists())
    assert parent.stdout.read() == b""
    parent.stdout.close()


def test_turns_go_on_until_the_next_is_of_no_time(full_pipe: int, tmp_path: Path) -> None:
    looks = os.open(tmp_path / "looks", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def next_seconds() -> float:
        os.write(looks, b"x")
        return 0.001 if os.fstat(looks).st_size < 5 else 0.0

    try:
        write_in_turns(next_seconds, 10.0, full_pipe, b"4096", b"8192")
    finally:
        os.close(looks)
    assert (tmp_path / "looks").read_bytes() == b"xxxxx"


def test_turns_end_with_a_write_that_ends_and_is_undone(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as stream:
        write_in_turns(lambda: 0.5, 10.0, stream.fileno(), b"4096", b"8192")
    assert (tmp_path / "file").read_bytes() == b"8192"


def test_the_time_of_all_turns_is_up(full_pipe: int) -> None:
    began = time.monotonic()
    with pytest.raises(InterruptedError):
        write_in_turns(lambda: 0.001, 0.05, full_pipe, b"4096", b"8192")
    assert time.monotonic() - began >= 0.05


def test_a_look_that_takes_longer_than_all_turns_may_is_ended(full_pipe: int) -> None:
    began = time.monotonic()
    with pytest.raises(InterruptedError):
        write_in_turns(lambda: time.sleep(60) or 0.0, 0.05, full_pipe, b"4096", b"8192")
    assert time.monotonic() - began < 30


def test_the_other_process_runs_no_finalizers_and_wakes_no_event_loop(full_pipe: int, tmp_path: Path) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    def next_seconds() -> float:
        for _ in range(20):
            Cycle()
        return 0.0005

    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        with pytest.raises(InterruptedError):
            write_in_turns(next_seconds, 0.1, full_pipe, b"4096", b"8192")
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
    assert {path.name for path in tmp_path.iterdir()} <= {str(os.getpid())}


def test_turns_are_ended_by_their_first_signal_or_a_later_one(full_pipe: int) -> None:
    """Of turns this short, many a first signal comes before the kernel waits."""
    for _ in range(20):
        with pytest.raises(InterruptedError):
            write_in_turns(lambda: 20e-6, 0.02, full_pipe, b"4096", b"8192")


def test_turns_tell_the_kernels_reason(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space left"):
        write_in_turns(lambda: 0.5, 10.0, stream.fileno(), b"4096", b"8192")

    def gone() -> float:
        raise OSError(errno.ENODEV, "gone")

    with (tmp_path / "file").open("wb") as stream, pytest.raises(OSError, match="No such device"):
        write_in_turns(gone, 10.0, stream.fileno(), b"4096", b"8192")


def test_full_cpus_take_none_of_the_time(tmp_path: Path) -> None:
    """The limit is of CPU time: waiting for a CPU does not use it up."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        with (tmp_path / "file").open("wb") as stream:
            for _ in range(20):
                write_within(0.2, stream.fileno(), b"1")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert (tmp_path / "file").read_bytes() == b"1" * 20
