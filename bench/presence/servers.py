"""Services that answer in less than a millisecond: PostgreSQL under pgbench and redis, at a fixed rate."""

import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.protect.measurement import Answers
from bench.protect.servers import Postgres, wait_for_port
from koordlet.demo.stage import Records, Stage

SERVERS = ("postgres", "redis")
CLIENT_START_SECONDS = 0.5


class TimedAnswers(Answers, Protocol):
    """Latencies whose intended starts are known on this machine's clock, too."""

    @property
    def began(self) -> float:
        """CLOCK_MONOTONIC of second 0 of the intended starts; right once the columns were read."""


class TimedServer(Protocol):
    """A service and its load."""

    def start(self, stage: Stage) -> None:
        """Start the service in its cgroup, ready for requests."""

    def load(self, stage: Stage, seconds: float, seed: int) -> TimedAnswers:
        """Start the requests."""


@dataclass(kw_only=True)
class RedisAnswers(Records):
    """Records of the client, which begins at a time that it is told."""

    began: float


class Redis:
    """One key of a server that writes nothing to disk."""

    def __init__(self, directory: Path, rate: float) -> None:
        self._directory, self._rate = directory, rate
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def start(self, stage: Stage) -> None:
        program = ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        stage.running(stage.online.spawn([*program, "--dir", str(self._directory)]))
        wait_for_port(self._port)
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(b"SET koord " + b"k" * 100 + b"\r\n")
            connection.recv(64)

    def load(self, stage: Stage, seconds: float, seed: int) -> RedisAnswers:
        began = time.monotonic() + CLIENT_START_SECONDS
        program = [sys.executable, "-m", "bench.presence.redis_client", str(self._port), str(self._rate)]
        client = subprocess.Popen([*program, str(seconds), str(seed), repr(began)], stdout=subprocess.PIPE)
        return RedisAnswers(stage.reading(client), began=began)


def server_of(victim: str, directory: Path, rate: float) -> TimedServer:
    """Make a server's files in the directory."""
    return Postgres(directory, rate) if victim == "postgres" else Redis(directory, rate)
