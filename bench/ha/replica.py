"""A scheduler behind its proxy: started, killed, stopped in its tracks, started again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.ha.proxy import Proxy


class Replica:
    """One `koord-scheduler` with leader election. `exits` are unwanted ends, with their exit codes."""

    def __init__(self, proxy: Proxy, folder: Path) -> None:
        self.proxy = proxy
        self.exits: list[int] = []
        self.starts = 0
        self._log = folder / f"{proxy.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "scheduler", "--server", f"http://127.0.0.1:{self.proxy.port}", "run"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen([*command, "--port", "0"], stdout=output, stderr=output)
        self.starts += 1
        self.proxy.follow(self._process.pid)

    def check(self) -> None:
        """Count an end that the trial did not ask for, and start again."""
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._process.returncode)
            self.start()

    def kill(self) -> None:
        """End the process without a chance to say goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the process where it is, as a node that hangs."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)
