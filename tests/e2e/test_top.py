"""The whole `koordlet top` in a terminal of 80 columns: it names a real victim and its culprit, and leaves cleanly."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.probe import Kernel
from tests.cgroups import CgroupTree
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

SERVING = """
interval_seconds = 0.5
[metrics]
enabled = false
[enforcer]
state_dir = "{directory}/state"
audit_file = ""
[detection]
baselines_file = ""
[serving]
enabled = true
socket = "{directory}/s.sock"
address = "127.0.0.1:0"
"""
SPIN = ["sh", "-c", "while :; do :; done"]
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[a-zA-Z~]|[()][A-Z0-9]|\][^\x07]*\x07|[=>78cM]|P[^\x1b]*\x1b\\)")


class Terminal:
    """A child in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.output = b""

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def read_until(self, pattern: str, seconds: float = 60.0) -> str:
        """Text since the last match, escapes removed, up to one that matches `pattern`."""
        deadline = time.monotonic() + seconds
        while True:
            text = _ESCAPES.sub(b" ", self.output).decode(errors="replace")
            if re.search(pattern, text):
                self.output = b""
                return text
            assert time.monotonic() < deadline, f"{pattern!r} does not show up in {text[-2000:]!r}"
            if select.select([self._descriptor], [], [], 0.2)[0]:
                self.output += self._read()

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # EIO: the other side is closed
            return b""

    def drain(self) -> None:
        while select.select([self._descriptor], [], [], 0.1)[0] and self._read():
            pass


@contextmanager
def terminal(command: list[str]) -> Iterator[Terminal]:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True, close_fds=True
    )
    os.close(child)
    try:
        yield Terminal(process, parent)
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def test_a_victim_its_cause_and_its_culprit_are_on_the_screen(kernel: Kernel, tree: CgroupTree) -> None:
    with tree.make_cgroup("e2ev") as victim, tree.make_cgroup("e2eh") as hog:
        victim.spawn(SPIN, cpus="0")
        hog.spawn(SPIN, cpus="0")
        with terminal([sys.executable, "-m", "koordlet", "top"]) as screen:
            screen.read_until("LOST")
            screen.read_until(r"e2ev\s+\d\.\d+\s+\d\.\d+[ N]+NNN[^\n]*e2eh")
            screen.read_until(r"(high|medium|low)\s+\S+\s+\d\.\d+ waiting for CPU\s+\S+ \d+%")
            screen.press("q")
            deadline = time.monotonic() + 60
            while screen.process.poll() is None and time.monotonic() < deadline:
                screen.drain()
            assert screen.process.returncode == 0


def test_another_agent_is_shown_by_its_socket(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    config, log = tmp_path / "koordlet.toml", tmp_path / "log"
    config.write_text(SERVING.format(directory=tmp_path))
    koordlet = [sys.executable, "-m", "koordlet"]
    with tree.make_cgroup("e2ev") as victim, tree.make_cgroup("e2eh") as hog, log.open("w") as stream:
        victim.spawn(SPIN, cpus="0")
        hog.spawn(SPIN, cpus="0")
        agent = subprocess.Popen([*koordlet, "run", "--standalone", "--config", str(config)], stderr=stream)
        try:
            wait_for(lambda: "verdicts on 127.0.0.1:" in log.read_text(), check=alive(agent, log))
            with terminal([*koordlet, "top", "--connect", f"unix:{tmp_path}/s.sock"]) as screen:
                screen.read_until(r"e2ev\s+\d\.\d+\s+\d\.\d+[ N]+NNN[^\n]*e2eh")
                screen.read_until(r"(high|medium|low)\s+\S+\s+\d\.\d+ waiting for CPU\s+\S+ \d+%")
                screen.press("q")
                screen.drain()
        finally:
            agent.terminate()
            agent.wait(30)


def test_an_agent_that_is_not_there_is_said_with_a_hint(tmp_path: Path) -> None:
    with terminal([sys.executable, "-m", "koordlet", "top", "--connect", f"unix:{tmp_path}/none.sock"]) as screen:
        text = screen.read_until("hint: ")
    assert "error: no answer on" in text


def test_without_a_terminal_it_says_what_to_use_instead(kernel: Kernel) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koordlet", "top"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "terminal" in done.stderr
    assert "koordlet run" in done.stderr
