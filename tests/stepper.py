"""A child that does one known, countable piece of work at each call of `step`, and sleeps between."""

import sys
from pathlib import Path
from typing import IO

from tests.cgroups import TestCgroup
from tests.waiting import wait_for

_LOOP = """
import os, sys
{setup}
os.write(1, b"r")
while os.read(0, 1):
    {work}
    os.write(1, b"d")
"""

SPIN_SETUP = """
import time
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""
"""Setup for `spin(seconds)`: that much CPU time of the child."""


class Stepper:
    """Runs `setup` once and the one-line `work` at each step, inside `cgroup`, pinned to `cpu`."""

    def __init__(self, cgroup: TestCgroup, cpu: int, work: str, setup: str = "") -> None:
        code = _LOOP.format(setup=setup, work=work)
        self._process = cgroup.spawn([sys.executable, "-S", "-E", "-c", code], cpus=str(cpu), stdin=-1, stdout=-1)
        self.pid = self._process.pid
        self._await()
        self.step()  # the first one pays for what Python sets up on the way

    def start(self) -> None:
        """Let one piece of work begin."""
        _pipe(self._process.stdin).write(b"s")
        _pipe(self._process.stdin).flush()

    def finish(self) -> None:
        """Wait until the piece is done and the child sleeps again."""
        self._await()

    def step(self) -> None:
        """One piece of work, from start to sleep."""
        self.start()
        self.finish()

    def _await(self) -> None:
        assert _pipe(self._process.stdout).read(1), f"the child died: {self._process.wait()}"
        wait_for(lambda: self._stat()[0] == "S", interval_seconds=0.001)

    def _stat(self) -> list[str]:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    @property
    def minor_faults(self) -> int:
        """Minor page faults of the child so far, by the kernel's count."""
        return int(self._stat()[7])

    @property
    def run_ns(self) -> int:
        """Time the child has run so far, by the scheduler's count."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    @property
    def switches(self) -> int:
        """Times the child was switched away, by the kernel's count."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in status if "voluntary_ctxt_switches" in line)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
