"""The agent's end of its guardian: starts the process, feeds it, and starts it again when it is gone.

The guardian survives the death of the agent on a plain host. In a container it dies with it: there the agent is the
first process, and the next one restores from the journal when the container is started again.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from koordlet.config import EnforcerSettings
from koordlet.host.files import HostTree

_log = logging.getLogger(__name__)

_START = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); "
    "from koordlet.enforcer.guardian.process import main; main(sys.argv[2:])"
)
_RESTART_SECONDS = 60.0
_END_SECONDS = 2.0


class Guardian:
    """A running guardian. Nothing here waits for it, and its loss never ends a tick."""

    def __init__(self, settings: EnforcerSettings, tree: HostTree) -> None:
        """Start it; where that fails it is logged, and tried again later."""
        given = {
            "pause_seconds": settings.guardian_seconds,
            "root": str(tree.root),
            "enforcer": msgspec.to_builtins(settings),
        }
        paths = [path for path in sys.path if path and Path(path).is_absolute()]
        self._command = [sys.executable, "-I", "-c", _START, json.dumps(paths), json.dumps(given)]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = float("-inf")
        self.starts = 0
        self._start()

    @property
    def pid(self) -> int | None:
        """Its process; None where there is none."""
        return self._process.pid if self._process else None

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self.starts += 1
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            _log.warning("no guardian: %s; actions stay if the agent is killed, until `koordlet restore`", error)
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def beat(self) -> None:
        """Tell of a completed tick."""
        if self._say("beat") or time.monotonic() - self._started_at < _RESTART_SECONDS:
            return
        _log.warning("the guardian is gone; starting another one")
        self._discard()
        self._start()

    def hand_over(self, until_seconds: float) -> None:
        """End with actions in effect that a successor may take over until a moment of the monotonic clock."""
        line = f"over {until_seconds!r}"
        if not self._say(line):
            self._discard()
            self._start()
            self._say(line)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def close(self) -> None:
        """Let it end: nothing is left to restore. Idempotent."""
        self._say("bye")
        self._discard()

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
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
