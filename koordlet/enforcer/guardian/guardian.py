"""The agent's end of its guardian: starts the process, feeds it, and starts it again when it is gone.

The guardian leaves the agent's cgroups for one of its own, and so outlives its unit or container too. Where the kernel
does not let it (an unprivileged container on cgroup v2), it dies with its container, and the next agent restores from
the journal when the container is started again.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from koordlet.config import EnforcerSettings
from koordlet.enforcer.guardian.restoring import left_by
from koordlet.host.files import HostTree

_log = logging.getLogger(__name__)

_START = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); "
    "from koordlet.enforcer.guardian.process import main; main(sys.argv[2:])"
)
_RESTART_SECONDS = (1.0, 60.0)
"""Time between two starts: the first, which doubles each time, and the longest."""
_CALM_SECONDS = 300.0
"""Time that a guardian lives, after which its death counts as the first."""
_REPORT_BYTES = 4096
_END_SECONDS = 2.0
_HEAD_START_SECONDS = 2.0
"""Time after a lease's end for the agent to restore by itself, so that as a rule one of both does."""


class Guardian:
    """A running guardian. Nothing here waits for it, and its loss never ends a tick. Any thread may call."""

    def __init__(self, settings: EnforcerSettings, tree: HostTree, *, adopted_until: float | None = None) -> None:
        """Start it; where that fails it is logged, and tried again later.

        Actions that were adopted from an earlier agent stay until `adopted_until`, a moment of the monotonic clock,
        while probes are loaded: until then the first tick may take its time.
        """
        self._given = {
            "pause_seconds": settings.guardian_seconds + _HEAD_START_SECONDS,
            "first_until": 0.0 if adopted_until is None else adopted_until + _HEAD_START_SECONDS,
            "root": str(tree.root),
            "left": asdict(left_by(settings)),
        }
        paths = [path for path in sys.path if path and Path(path).is_absolute()]
        self._command = [sys.executable, "-I", "-c", _START, json.dumps(paths)]
        self._lock = threading.RLock()
        """Of the process and its pipes, which ticks and the thread of the leases use."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = float("-inf")
        self._pause_seconds = _RESTART_SECONDS[0]
        self._report = b""
        self._is_told = False
        self.starts = 0
        self._start()

    @property
    def pid(self) -> int | None:
        """Its process; None where there is none."""
        return self._process.pid if self._process else None

    @property
    def outlives_agent(self) -> bool:
        """True if it has left the agent's cgroups, so that what ends these leaves it alive."""
        with self._lock:
            process = self._process
            if process is None or process.stdout is None:
                return False
            with contextlib.suppress(OSError, ValueError):
                self._report += os.read(process.stdout.fileno(), _REPORT_BYTES)
            return self._report.startswith(b"apart")

    @property
    def obstacle(self) -> str:
        """Reason why it could not leave the agent's cgroups; empty if it could, or has not reported yet."""
        return "" if self.outlives_agent else self._report.decode(errors="replace").removeprefix("beside").strip()

    def _start(self) -> None:
        now = time.monotonic()
        first, longest = _RESTART_SECONDS
        is_calm = now - self._started_at > _CALM_SECONDS
        self._pause_seconds = first if is_calm else min(self._pause_seconds * 2, longest)
        self._started_at = now
        self._report = b""
        self.starts += 1
        try:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(self._given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            _log.warning("no guardian: %s; actions stay if the agent is killed, until `koordlet restore`", error)
            return
        self._given["first_until"] = 0.0  # one that is started again has an agent that ticks
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)

    def beat(self) -> None:
        """Tell of a completed tick."""
        with self._lock:
            self._tell_obstacle()
            if self._say("beat") or time.monotonic() - self._started_at < self._pause_seconds:
                return
            _log.warning("the guardian is gone; starting another one")
            self._discard()
            self._start()

    def _tell_obstacle(self) -> None:
        if not self._is_told and (self.outlives_agent or self._report):
            self._is_told = True
            if self.obstacle:
                _log.info("the guardian dies with this container or unit: %s", self.obstacle)

    def ease(self) -> None:
        """Tell that no tick is completed, and that the actions were ended for it."""
        with self._lock:
            self._say("eased")

    def hand_over(self, until_seconds: float) -> None:
        """End with actions in effect that a successor may take over until a moment of the monotonic clock."""
        line = f"over {until_seconds!r}"
        with self._lock:
            if not self._say(line):
                self._discard()
                self._start()
                self._say(line)
            process, self._process = self._process, None
            for stream in (process.stdin, process.stdout) if process is not None else ():
                if stream is not None:
                    stream.close()

    def close(self) -> None:
        """Let it end: nothing is left to restore. Idempotent."""
        with self._lock:
            self._say("bye")
            self._discard()

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)

    def _say(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())
        except BlockingIOError:
            return True  # it is stopped; what it reads later is a beat all the same
        except (OSError, ValueError):
            return False
        return True
