"""Waiting for a condition, with a deadline and an error that names the condition and its last value.

found = wait_for(lambda: client.find(PODS, key))
wait_for(lambda: "ready" in log.read_text(), check=alive(process, log))
"""

import inspect
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = float(os.environ.get("KOORD_TEST_PATIENCE", "1"))
"""Factor of every deadline; an emulated machine needs a multiple."""
TIMEOUT_SECONDS = 60.0
INTERVAL_SECONDS = 0.01
CPU_SHARE = 0.1
"""Most of a CPU that looking for something takes: what is waited for needs it too, and an emulated CPU is soon full."""
LOG_CHARS = 4000


def wait_for(
    condition: Callable[[], T | None],
    timeout_seconds: float = TIMEOUT_SECONDS,
    *,
    interval_seconds: float = INTERVAL_SECONDS,
    check: Callable[[], str] = str,
) -> T:
    """Return the first true value of `condition`, evaluated once more at the deadline, which `PATIENCE` puts off.

    Evaluations are `interval_seconds` apart, or farther so as to take no more than `CPU_SHARE`.

    `check` runs before each evaluation: it raises where waiting is pointless, and returns a text for the error.
    Raises AssertionError with the source of the condition, its last value and that text.
    """
    timeout_seconds *= PATIENCE
    deadline = time.monotonic() + timeout_seconds
    while True:
        begun = time.thread_time()
        is_last = time.monotonic() >= deadline
        context = check()
        value = condition()
        if value:
            return value
        if is_last:
            raise AssertionError(f"not within {timeout_seconds:g} s: {_source(condition)}; last {value!r}\n{context}")
        time.sleep(pause_after(time.thread_time() - begun, interval_seconds))


def pause_after(cpu_seconds: float, interval_seconds: float) -> float:
    """Return the pause after a look that took so much CPU: `interval_seconds`, or longer for `CPU_SHARE`."""
    return max(interval_seconds, cpu_seconds * (1 / CPU_SHARE - 1))


def alive(process: subprocess.Popen[Any], log: Path) -> Callable[[], str]:
    """Return a check that `process` runs; its error, and that of the wait, show the end of `log`."""

    def check() -> str:
        is_running, text = process.poll() is None, log.read_text()[-LOG_CHARS:]
        assert is_running, f"ended with status {process.returncode}\n{text}"
        return text

    return check


def _source(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
