"""A command for this machine that takes the place of a guest: what it prints is passed on, and it gets a row."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from tests.vm.outcomes import Row

HERE = "this machine"
TERM_SECONDS = 10.0
FAILURES = ("FAILED ", "ERROR ")
"""How pytest's summary of what failed begins its lines."""


def run(command: str, on_line: Callable[[str], None], stop: threading.Event) -> list[Row]:
    """Run the shell `command`; every line it prints goes to `on_line`. Setting `stop` kills its process group."""
    on_line(f"== {HERE}: {command}")
    started = time.monotonic()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    ended = threading.Event()
    watch = threading.Thread(target=_end_when_told, args=(process, stop, ended))
    watch.start()
    failures = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            on_line(f"{HERE}: {line.rstrip()}")
            if line.startswith(FAILURES):
                failures.append(line.rstrip())
        status = process.wait()
    finally:
        ended.set()
        watch.join()
    taken = f"in {time.monotonic() - started:.0f} s"
    if status:
        return [Row(HERE, "other tests", "FAIL", f"status {status} {taken}", tuple(failures))]
    return [Row(HERE, "other tests", "pass", taken)]


def _end_when_told(process: subprocess.Popen[str], stop: threading.Event, ended: threading.Event) -> None:
    while not ended.wait(0.2):
        if stop.is_set():
            os.killpg(process.pid, signal.SIGTERM)
            if not ended.wait(TERM_SECONDS):
                os.killpg(process.pid, signal.SIGKILL)
            return
