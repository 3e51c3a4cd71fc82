"""Stage of the demo: its programs in cgroups of its own, started, read, stopped and always removed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from koordlet.demo import batch, service
from koordlet.demo.client import RECORD
from koordlet.demo.layout import SIBLINGS, Layout
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.scratch import ScratchCgroup
from koordlet.host.files import HostTree

ROOT, ONLINE, BATCH = SIBLINGS.root, SIBLINGS.online, SIBLINGS.batch

_SETTINGS = """\
[[qos]]
match = "{online}*"
class = "LS"
[[qos]]
match = "{batch}*"
class = "BE"
[metrics]
enabled = false
[detection]
baselines_file = "{directory}/baselines.json"
[enforcer]
enabled = true
dry_run = {dry_run}
strategies = [{strategies}]
only = ["{root}/*"]
state_dir = "{directory}"
audit_file = "{directory}/audit.jsonl"
{more}"""


class StageError(Exception):
    """A program of the demo did not start; the message says which and why."""


@dataclass
class Stage:
    """Cgroups and programs of the demo; `close` removes all of them."""

    directory: Path
    service_seconds: float
    layout: Layout = SIBLINGS
    online: ScratchCgroup = field(init=False)
    batch: ScratchCgroup = field(init=False)
    port: int = 0
    strategies: tuple[str, ...] = ("response",)
    """Strategies whose intents the agent applies."""
    more_settings: str = ""
    """TOML appended to the agent's settings."""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _cgroups: dict[str, ScratchCgroup] = field(init=False)
    """By path, from the root on: each took note of what it enabled above it."""

    def __post_init__(self) -> None:
        """Raises StageError where another program made the layout's root."""
        layout = self.layout
        hierarchy = find_hierarchies(HostTree(Path("/"))).cpu
        if layout.root != SIBLINGS.root and (hierarchy / layout.root.lstrip("/")).exists():
            raise StageError(f"{layout.root} is there already: a kubelet may run here, and would remove these pods")
        self._cgroups = {path: ScratchCgroup(path) for path in reversed(layout.paths)}
        self.online, self.batch = self._cgroups[layout.online], self._cgroups[layout.batch]
        for path, shares in layout.shares.items():
            self._cgroups[path].write_shares(shares)

    @property
    def audit(self) -> Path:
        """Path of the agent's audit log."""
        return self.directory / "audit.jsonl"

    def start_service(self) -> None:
        """Start the latency-sensitive service, with a worker for each CPU. Raises StageError."""
        blocks = service.blocks_for(self.service_seconds)
        workers = os.cpu_count() or 1
        program = [sys.executable, "-P", "-m", "koordlet.demo.service", "0", str(blocks), str(workers)]
        process = self._start(self.online.spawn(program, stdout=subprocess.PIPE))
        line = process.stdout.readline() if process.stdout else b""
        if not line.strip():
            raise StageError(f"the service did not start (exit status {process.wait()})")
        self.port = int(line)

    def start_client(self, rate: float, seconds: float, seed: int) -> IO[bytes]:
        """Start open-loop load from outside both cgroups; its records come on the returned pipe."""
        arguments = [str(self.port), str(rate), str(seconds), str(seed)]
        program = [sys.executable, "-P", "-m", "koordlet.demo.client", *arguments]
        return self.reading(subprocess.Popen(program, stdout=subprocess.PIPE))

    def start_batch(self) -> None:
        """Start best-effort work, two workers for each CPU."""
        workers = 2 * (os.cpu_count() or 1)
        self._start(
            self.batch.spawn(
                [sys.executable, "-P", "-m", "koordlet.demo.batch", str(self.directory / "blocks"), str(workers)]
            )
        )

    def blocks_done(self) -> int:
        """Return the best-effort blocks so far."""
        counter = self.directory / "blocks"
        return batch.blocks_done(counter) if counter.exists() else 0

    @property
    def log(self) -> Path:
        """Path of the agent's log."""
        return self.directory / "koordlet.log"

    def start_agent(self, *, acts: bool, verbose: bool = False) -> IO[bytes]:
        """Start the agent with the classes of both cgroups; its verdicts come on the returned pipe as JSON lines.

        A `verbose` one logs trips.
        """
        path = self.directory / "koordlet.toml"
        dry = "false" if acts else "true"
        named = ", ".join(f'"{name}"' for name in self.strategies)
        classed_online, classed_batch = self.layout.classed
        text = _SETTINGS.format(
            root=self.layout.root,
            online=classed_online,
            batch=classed_batch,
            dry_run=dry,
            directory=self.directory,
            strategies=named,
            more=self.more_settings,
        )
        path.write_text(text)
        program = [sys.executable, "-P", "-m", "koordlet", "run", "--standalone", "--json", "--config", str(path)]
        program += ["-v"] * verbose
        with self.log.open("ab") as log:
            return self.reading(subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log))

    def check(self) -> None:
        """Raise StageError if the agent has exited."""
        for process in self._running:
            if "run" in process.args and process.poll() is not None:  # type: ignore[operator]
                log = self.log.read_text(errors="replace").strip().splitlines()
                raise StageError(f"the agent ended with status {process.returncode}: {log[-1] if log else 'no output'}")

    def stop_programs(self) -> None:
        """Stop the agent by SIGTERM, so that it restores what it set, and kill the others."""
        for process in self._running:
            if process.poll() is None:
                process.terminate()
        self.batch.kill()
        self.online.kill()
        for process in self._running:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running.clear()
        (self.directory / "blocks").unlink(missing_ok=True)

    def close(self) -> None:
        """Stop everything, remove the cgroups, and disable the controllers that were enabled for them."""
        self.stop_programs()
        for path in self.layout.paths:
            self._cgroups[path].remove()

    @property
    def newest_pid(self) -> int:
        """Process of the newest program."""
        return self._running[-1].pid

    def running(self, process: subprocess.Popen[bytes]) -> None:
        """Register a program that the caller started, to be stopped with the others."""
        self._running.append(process)

    def reading(self, process: subprocess.Popen[bytes]) -> IO[bytes]:
        """Register a program and return its output, a pipe that never waits."""
        self.running(process)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process.stdout

    def _start(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        self._running.append(process)
        return process


@contextmanager
def staged(service_seconds: float, layout: Layout = SIBLINGS) -> Iterator[Stage]:
    """Make a stage that is always cleared away."""
    with tempfile.TemporaryDirectory(prefix="koord-demo-") as directory:
        stage = Stage(Path(directory), service_seconds, layout)
        try:
            yield stage
        finally:
            stage.close()


@dataclass
class Records:
    """Records of the client as they arrive."""

    pipe: IO[bytes]
    at: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    ended: bool = False
    _rest: bytes = b""

    def read(self) -> None:
        """Read what has arrived; never waits."""
        while True:
            data = self.pipe.read(65_536)
            if data is None:
                return
            if not data:
                self.ended = True
                return
            data = self._rest + data
            whole = len(data) // RECORD.size * RECORD.size
            for at, latency in RECORD.iter_unpack(data[:whole]):
                self.at.append(at)
                self.latency.append(latency)
            self._rest = data[whole:]

    def columns(
        self,
    ) -> tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
        """Return (intended start, latency) of all requests so far."""
        return np.array(self.at), np.array(self.latency)


def read_lines(pipe: IO[bytes], rest: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines waiting on a pipe, and the beginning of the next; never waits."""
    data = rest
    while piece := pipe.read(65_536):
        data += piece
    *lines, rest = data.split(b"\n")
    return lines, rest
