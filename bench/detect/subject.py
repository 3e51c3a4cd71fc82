"""The product under test, as it is deployed: `koordlet run --standalone --json`, and its verdicts."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from api.verdicts import Verdict, from_json

# Nothing but the classes of the bench's own cgroups is set, and what would reach beyond the bench is off.
SETTINGS = """
[metrics]
enabled = false
[detection]
baselines_file = ""
[[qos]]
match = "/koord-test-*/be-*"
class = "BE"
"""
# Bounds on a hang, not figures: an emulated machine takes twenty times as long as a real one.
START_SECONDS = 120.0
STOP_SECONDS = 60.0


class SubjectError(Exception):
    """The product ended, or did not start."""


class Subject:
    """A running agent. A context manager that stops it."""

    def __init__(self, folder: Path, recording: Path | None = None) -> None:
        settings = folder / "koordlet.toml"
        settings.write_text(SETTINGS)
        record = ["--record", str(recording)] if recording else []
        argv = [sys.executable, "-m", "koordlet", "run", "--standalone", "--json", "--config", str(settings), *record]
        self._log_path = folder / "koordlet.log"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        self._rest = b""

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        try:
            while b"measuring with" not in self._log_path.read_bytes():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SubjectError(f"the agent did not start:\n{self.log}")
                time.sleep(0.1)
        except BaseException:  # Ctrl-C too: the agent has a session of its own and does not hear it
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """Its standard error."""
        return self._log_path.read_text(errors="replace")

    def poll(self, seconds: float) -> list[Verdict]:
        """Wait so many seconds and return the verdicts that arrive, with their time of arrival. Raises SubjectError at
        its end."""
        deadline = time.monotonic() + seconds
        found: list[Verdict] = []
        while True:
            ready, _, _ = select.select([self._descriptor], [], [], max(deadline - time.monotonic(), 0.0))
            if not ready:
                return found
            read = os.read(self._descriptor, 1 << 16)
            if not read:
                raise SubjectError(f"the agent ended:\n{self.log}")
            *lines, self._rest = (self._rest + read).split(b"\n")
            arrived = time.time()
            found += [msgspec.structs.replace(from_json(line), time=arrived) for line in lines]

    def stop(self) -> None:
        """End it, gently at first."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
