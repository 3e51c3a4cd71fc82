"""Programs of the node: known by pid and start time, so that no other process is ever ended in their place."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.waiting import wait_for

GRACE_SECONDS = 15.0
_START_TIME_FIELD = 19
"""Index of starttime in /proc/PID/stat (proc(5)), counted from the state behind the name."""
LOG_CHARS = 3000


class Started(msgspec.Struct, frozen=True):
    """A process that was started here."""

    name: str
    pid: int
    start_time: int
    """Clock ticks since boot."""

    @property
    def is_alive(self) -> bool:
        """Whether the pid is still this process, and no zombie."""
        return start_time_of(self.pid) == self.start_time


def start_time_of(pid: int) -> int | None:
    """Return the start time of a living process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])


def start(name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Started:
    """Start a program in a session of its own: the terminal's Ctrl-C ends pytest, which then ends it in order."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=dict(environment),
        )
    process.returncode = 0  # ended by `stop`, perhaps in another run: Popen shall not complain of a living child
    return Started(name, process.pid, start_time_of(process.pid) or 0)


def stop(process: Started, grace_seconds: float = GRACE_SECONDS) -> None:
    """End a process, by SIGKILL when the grace period is over. A process that has ended is no error."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, GRACE_SECONDS)):
        if not _is_alive(process):
            return
        os.kill(process.pid, number)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not _is_alive(process), seconds)


def _is_alive(process: Started) -> bool:
    with contextlib.suppress(ChildProcessError):  # started by an earlier run
        os.waitpid(process.pid, os.WNOHANG)
    return process.is_alive


def end_of(log: Path) -> str:
    """Return the last lines of a log."""
    return log.read_text(errors="replace")[-LOG_CHARS:] if log.exists() else ""
