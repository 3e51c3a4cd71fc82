"""Real services as victims: nginx that compresses pages, and PostgreSQL under pgbench at a fixed rate.

Beside them run real programs as best-effort work; what these do is counted in milliseconds of CPU time.
"""

import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Protocol

import numpy as np

from bench.protect.columns import Column, usage_seconds
from bench.protect.measurement import Answers, watch
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import Records, Stage

SETTLE_SECONDS = 6.0
_PAGE_BYTES = 96 << 10
_REAL_TIME = ("chrt", "-f", "10")
_POSTGRES_BIN = Path("/usr/lib/postgresql/15/bin")
_AS_POSTGRES = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
_WORDS = 400

BESIDE = ("xz", "stress-ng", "tar-gzip")
"""Best-effort work by name."""


class Server(Protocol):
    """A service and its load."""

    def start(self, stage: Stage) -> None:
        """Start the service in its cgroup, ready for requests."""

    def load(self, stage: Stage, seconds: float, seed: int) -> Answers:
        """Start the requests."""


class Nginx:
    """Pages of text, compressed for each request."""

    def __init__(self, directory: Path, rate: float) -> None:
        self._directory, self._rate = directory, rate
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        (directory / "page").write_text(_text(_PAGE_BYTES))
        (directory / "nginx.conf").write_text(
            f"daemon off; user root; worker_processes {os.cpu_count()}; pid {directory}/pid; error_log /dev/null;"
            "events { worker_connections 1024; }"
            "http { access_log off; gzip on; gzip_comp_level 6; gzip_types *; default_type text/plain;"
            f" server {{ listen 127.0.0.1:{self._port}; root {directory}; }} }}"
        )

    def start(self, stage: Stage) -> None:
        stage.running(stage.online.spawn(["nginx", "-p", str(self._directory), "-c", f"{self._directory}/nginx.conf"]))
        wait_for_port(self._port)

    def load(self, stage: Stage, seconds: float, seed: int) -> Answers:
        program = [sys.executable, "-m", "bench.protect.http_client", str(self._port), str(self._rate)]
        client = subprocess.Popen([*program, str(seconds), str(seed)], stdout=subprocess.PIPE)
        return Records(stage.reading(client))


class Postgres:
    """Selects by key from a table that fits into memory."""

    def __init__(self, directory: Path, rate: float) -> None:
        self._directory, self._rate, self._runs = directory, rate, 0
        shutil.chown(directory, "postgres", "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])
        self._run(str(_POSTGRES_BIN / "initdb"), "-D", f"{directory}/data", "-A", "trust")
        self._made = False

    def start(self, stage: Stage) -> None:
        options = ["-c", f"unix_socket_directories={self._directory}", "-c", "fsync=off", "-p", self._port]
        program = [*_AS_POSTGRES, str(_POSTGRES_BIN / "postgres"), "-D", f"{self._directory}/data", *options]
        stage.running(stage.online.spawn(program, stdout=subprocess.DEVNULL))
        wait_for_port(int(self._port))
        time.sleep(0.5)
        if not self._made:
            self._run("pgbench", "-i", "-q", "-s", "5", "-h", "127.0.0.1", "-p", self._port, "postgres")
            self._made = True

    def load(self, stage: Stage, seconds: float, seed: int) -> "PgbenchLog":
        self._runs += 1
        log = self._directory / f"run-{self._runs}"
        program = ["pgbench", "-n", "-S", "-M", "prepared", "-c", "8", "-j", "2", "-R", str(self._rate), "-l"]
        program += [f"--log-prefix={log}", f"--random-seed={seed}", "-T", str(int(seconds))]
        program += ["-h", "127.0.0.1", "-p", self._port, "postgres"]
        client = subprocess.Popen(
            [*_REAL_TIME, *_AS_POSTGRES, *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stage.running(client)
        return PgbenchLog(client, log)

    def _run(self, *command: str) -> None:
        subprocess.run([*_AS_POSTGRES, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class PgbenchLog:
    """Transactions of a pgbench run, read when it has ended; their latency counts from the scheduled start."""

    def __init__(self, client: "subprocess.Popen[bytes]", prefix: Path) -> None:
        self._client, self._prefix = client, prefix
        self.began = math.nan
        """CLOCK_MONOTONIC of the first scheduled start, once the columns were read."""

    @property
    def ended(self) -> bool:
        return self._client.poll() is not None

    def read(self) -> None:
        return None

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        lines = [
            line.split()
            for path in sorted(self._prefix.parent.glob(f"{self._prefix.name}.*"))
            for line in path.read_text().splitlines()
        ]
        started, latency = transactions([line for line in lines if len(line) >= 6])
        if not len(started):
            return started, latency
        self.began = float(started.min()) - time.time() + time.monotonic()
        return started - started.min(), latency


def transactions(lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return scheduled starts, since the epoch, and latencies of log lines: client, number, time in us, script, epoch,
    us, lag."""
    latency = np.array([float(line[2]) / 1e6 if line[2].isdigit() else np.nan for line in lines])
    ended = np.array([float(line[4]) + float(line[5]) / 1e6 for line in lines])
    return ended - np.nan_to_num(latency), latency


@contextmanager
def server_of(victim: str, load: float) -> Iterator[Server]:
    """Make a server's files, and remove them at the end."""
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        cpus = os.cpu_count() or 1
        if victim == "nginx":
            yield Nginx(directory, load * cpus / 0.010)
        else:
            yield Postgres(directory, load * cpus / 0.0005)


def start_beside(stage: Stage, name: str) -> None:
    """Start best-effort work, more of it than there are CPUs."""
    cpus = os.cpu_count() or 1
    text = stage.directory / "text"
    if not text.exists():
        text.write_text(_text(16 << 20))
    commands = {
        "xz": [["bash", "-c", f"while :; do xz -6 -c {text} > /dev/null; done"]] * (2 * cpus),
        "stress-ng": [["stress-ng", "--cpu", str(2 * cpus), "--vm", "1", "--vm-bytes", "64M", "--timeout", "1h", "-q"]],
        "tar-gzip": [["bash", "-c", "while :; do tar c /usr/lib/python3* 2> /dev/null | gzip > /dev/null; done"]]
        * cpus,
    }
    for command in commands[name]:
        stage.running(stage.batch.spawn(command, stdout=subprocess.DEVNULL))


def measure(
    stage: Stage, column: Column, server: Server, beside: str, *, seconds: float, seed: int, stop: Event
) -> DemoPhase:
    """Run one column once on a fresh service and fresh best-effort work."""
    server.start(stage)
    column.set_up(stage)
    try:
        answers = server.load(stage, seconds + SETTLE_SECONDS, seed)
        if column.with_batch:
            start_beside(stage, beside)
        return watch(
            stage,
            column,
            answers,
            lambda: int(usage_seconds(stage.batch) * 1000),
            settle_seconds=SETTLE_SECONDS,
            seconds=seconds,
            stop=stop,
        )
    finally:
        column.take_down(stage)
        stage.stop_programs()


def _text(size: int) -> str:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(_WORDS)]
    return " ".join(draw.choices(words, k=size // 6))[:size]


def wait_for_port(port: int) -> None:
    """Wait until a server listens. Raises TimeoutError."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")
