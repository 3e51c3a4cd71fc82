"""Services that answer in less than a millisecond: PostgreSQL under pgbench and redis, at a fixed rate."""

import socket
import subprocess
import sys
from pathlib import Path

from bench.protect.measurement import Answers
from bench.protect.servers import Postgres, Server, wait_for_port
from koordlet.demo.stage import Records, Stage

SERVERS = ("postgres", "redis")


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

    def load(self, stage: Stage, seconds: float, seed: int) -> Answers:
        program = [sys.executable, "-m", "bench.presence.redis_client", str(self._port), str(self._rate)]
        client = subprocess.Popen([*program, str(seconds), str(seed)], stdout=subprocess.PIPE)
        return Records(stage.reading(client))


def server_of(victim: str, directory: Path, rate: float) -> Server:
    """Make a server's files in the directory."""
    return Postgres(directory, rate) if victim == "postgres" else Redis(directory, rate)
