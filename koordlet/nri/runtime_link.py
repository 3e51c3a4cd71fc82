"""The link to the runtime: connects to its NRI socket, registers, answers; and again after a pause when it is lost."""

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf.message import DecodeError

from api.plugin import Unsupported
from koordlet.nri.mux import Mux
from koordlet.nri.nri_pb2 import ConfigureRequest, RegisterPluginRequest
from koordlet.nri.plugin import SERVICE, Plugin
from koordlet.nri.settings import NriSettings
from koordlet.nri.ttrpc import CallRefused, Connection

_log = logging.getLogger(__name__)

RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
_JITTER = 0.1
_MOST_PAUSE_SECONDS = 60.0


class RuntimeLink:
    """One thread that keeps the plugin registered. `close` ends it."""

    def __init__(self, plugin: Plugin, path: Path, settings: NriSettings) -> None:
        self.plugin = plugin
        self.connections = 0
        """Connections on which the runtime asked something."""
        self.reason = "not connected yet"
        """Why there is no connection; empty while there is one."""
        self.path = path
        """The runtime's socket."""
        self._settings = settings
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._trunk: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="nri", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the connection and the thread; idempotent."""
        self._stop.set()
        with self._lock:
            if self._trunk is not None:
                with contextlib.suppress(OSError):
                    self._trunk.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        attempt = 0
        while not self._stop.is_set():
            asked = self.connections
            try:
                self._serve()
            except (OSError, CallRefused, ValueError) as error:
                reason = f"{self.path}: {error}"
                if reason != self.reason and not self._stop.is_set():
                    _log.warning("NRI: %s; containers start without the plugin until it is back", reason)
                self.reason = reason
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a runtime sends
                _log.exception("NRI: the connection ended on an unexpected error")
                self.reason = f"{self.path}: {error!r}"
            attempt = 0 if self.connections > asked else attempt + 1
            self._stop.wait(pause_seconds(self._settings.backoff_seconds, attempt, random.random))

    def _serve(self) -> None:
        with socket.socket(socket.AF_UNIX) as trunk:
            trunk.settimeout(self._settings.connect_timeout_seconds)
            trunk.connect(str(self.path))
            with self._lock:
                self._trunk = trunk
            try:
                self._answer(trunk)
            finally:
                with self._lock:
                    self._trunk = None

    def _answer(self, trunk: socket.socket) -> None:
        connection = Connection(Mux(trunk), SERVICE, self.plugin.handle)
        register = RegisterPluginRequest(plugin_name=self._settings.plugin_name, plugin_idx=self._settings.plugin_index)
        timeout = self._settings.connect_timeout_seconds
        connection.call(RUNTIME_SERVICE, "RegisterPlugin", register.SerializeToString(), timeout)
        deadline = time.monotonic() + timeout
        while connection.answered == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the runtime did not ask anything for {timeout:g} s")
            connection.receive()
        trunk.settimeout(None)
        self.connections += 1
        self.reason = ""
        _log.info("NRI: answering %s at %s", self.plugin.runtime or "the runtime", self.path)
        while not self._stop.is_set():
            connection.receive()


def pause_seconds(first: float, attempt: int, draw: Callable[[], float]) -> float:
    """Return the pause after the given number of failures in a row: twice as long each, with a tenth of jitter."""
    pause: float = min(first * 2.0 ** min(attempt, 16), _MOST_PAUSE_SECONDS)
    return pause * (1 + _JITTER * draw())


def ask_runtime(path: Path, timeout_seconds: float) -> str:
    """Return name and version of the runtime at an NRI socket. Raises Unsupported.

    The runtime tells them to a plugin that registers; this one refuses to be configured and is gone.
    """
    remedy = "check that the runtime runs with NRI enabled, and that its socket is mounted into the agent's pod"
    told: list[str] = []

    def listen(method: str, payload: bytes) -> None:
        if method == "Configure":
            asked = ConfigureRequest.FromString(payload)
            told.append(f"{asked.runtime_name} {asked.runtime_version}".strip())

    try:
        with socket.socket(socket.AF_UNIX) as trunk:
            trunk.settimeout(timeout_seconds)
            trunk.connect(str(path))
            connection = Connection(Mux(trunk), SERVICE, listen)
            register = RegisterPluginRequest(plugin_name="koordlet_doctor", plugin_idx="99")
            connection.call(RUNTIME_SERVICE, "RegisterPlugin", register.SerializeToString(), timeout_seconds)
            deadline = time.monotonic() + timeout_seconds
            while not told:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the runtime did not say its name for {timeout_seconds:g} s")
                connection.receive()
    except (OSError, CallRefused, ValueError, DecodeError) as error:
        raise Unsupported(f"NRI at {path}: {error}", remedy) from error
    return told[0] or "a runtime without a name"
