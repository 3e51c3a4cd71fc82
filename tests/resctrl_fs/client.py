"""Client of the stand-in resctrl: mount it in a test, and set its counters.

with mounted(INTEL, tmp_path / "resctrl", options=("cdp",)) as fs:
    (fs.path / "batch").mkdir()
    fs.set_value("batch", "llc_occupancy", 4 << 20, domain=0)
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.resctrl_fs.control import Reply, Request, SetRate, SetUnreadable, SetValue
from tests.resctrl_fs.counters import Unreadable
from tests.resctrl_fs.hardware import Machine

MOUNT_TIMEOUT_SECONDS = 20.0
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class MountedResctrl:
    """A mounted file system. Groups are named by their path below it: "", "batch", "batch/mon_groups/job"."""

    path: Path
    machine: Machine
    server: subprocess.Popen[bytes]

    def set_value(self, group: str, event: str, value: int, domain: int | None = None) -> None:
        """Let `event` of the group's own RMID read `value` bytes (in every domain, or in one)."""
        self._ask(SetValue(group, event, domain, value=value))

    def set_rate(self, group: str, event: str, bytes_per_second: float, domain: int | None = None) -> None:
        """Let `event` grow steadily from what it reads."""
        self._ask(SetRate(group, event, domain, bytes_per_second=bytes_per_second))

    def set_unreadable(
        self, group: str, event: str, reading: Unreadable, domain: int | None = None, *, is_once: bool = False
    ) -> None:
        """Let `event` read "Unavailable" or "Error" until its value is set, or once."""
        self._ask(SetUnreadable(group, event, domain, reading=reading, is_once=is_once))

    def last_status(self) -> str:
        """Return info/last_cmd_status without the newline."""
        return (self.path / "info" / "last_cmd_status").read_text().rstrip("\n")

    def _ask(self, request: Request) -> None:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(msgspec.json.encode(request) + b"\n")
        self.server.stdin.flush()
        reply = msgspec.json.decode(self.server.stdout.readline(), type=Reply)
        if reply.error is not None:
            raise ValueError(reply.error)


@contextmanager
def mounted(machine: Machine, mountpoint: Path, options: Sequence[str] = ()) -> Iterator[MountedResctrl]:
    """Mount in a process of its own, which ends with the context or with this process.

    Raises OSError where mount(2) would refuse the options, RuntimeError where FUSE does not work here.
    """
    mountpoint.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.resctrl_fs", "-o", ",".join(options), str(mountpoint)]
    command += ["--machine", msgspec.json.encode(machine).decode()]
    with subprocess.Popen(
        command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        try:
            _wait_until_mounted(mountpoint, server)
            yield MountedResctrl(mountpoint, machine, server)
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(mountpoint)], check=False, capture_output=True)
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_until_mounted(mountpoint: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + MOUNT_TIMEOUT_SECONDS
    while not mountpoint.is_mount():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            assert server.stderr is not None
            text = server.stderr.read().decode().strip()
            if "mount refused" in text:
                raise OSError(text.rpartition("mount refused: ")[2])
            raise RuntimeError(f"cannot mount at {mountpoint}: {text or 'timeout'}")
        time.sleep(0.01)
