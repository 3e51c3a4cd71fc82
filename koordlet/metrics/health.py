"""Health of the agent for the kubelet's probes: /healthz while it ticks, /readyz from its first tick on."""

import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from koordlet.host.scheduling import let_others_first
from koordlet.metrics.connections import HAS_CERTIFICATE

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

STALLED_SECONDS = 30.0
"""Time without a tick, besides ten intervals, after which the agent counts as stalled; the first may take as long."""
_INTERVALS = 10


class TickHealth:
    """When the last tick was; written by the loop, read by the threads of requests."""

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_seconds = STALLED_SECONDS + _INTERVALS * interval_seconds
        self._clock = clock
        self._last = clock()
        self._ticks = 0

    def beat(self) -> None:
        """Note a tick."""
        self._last, self._ticks = self._clock(), self._ticks + 1

    def problem(self, path: str) -> str:
        """Return what is wrong, as `/healthz` or `/readyz` asks; empty where nothing is."""
        silent = self._clock() - self._last
        if silent > self._patience_seconds:
            return f"no tick for {silent:.0f} s"
        return "no tick yet" if path == "/readyz" and not self._ticks else ""


def with_health(health: TickHealth, metrics: "WSGIApplication") -> "WSGIApplication":
    """Return an application that answers for the probes and passes other paths on."""

    def answer(environment: "WSGIEnvironment", respond: "StartResponse") -> Iterable[bytes]:
        path = str(environment.get("PATH_INFO", ""))
        if path not in ("/healthz", "/readyz"):
            return metrics(environment, respond)
        problem = health.problem(path)
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        respond(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{problem or 'ok'}\n".encode()]

    return answer


def for_certificates_only(metrics: "WSGIApplication") -> "WSGIApplication":
    """Return an application that answers clients with a verified certificate only."""

    def answer(environment: "WSGIEnvironment", respond: "StartResponse") -> Iterable[bytes]:
        if environment.get(HAS_CERTIFICATE):
            return metrics(environment, respond)
        status = HTTPStatus.FORBIDDEN
        respond(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"show a client certificate of an authority of [metrics] client_ca\n"]

    return answer


def few_at_once(metrics: "WSGIApplication", most: int = 4) -> "WSGIApplication":
    """Return an application that turns scrapes away while `most` are being answered, instead of piling them up."""
    free = threading.BoundedSemaphore(most)

    def answer(environment: "WSGIEnvironment", respond: "StartResponse") -> Iterable[bytes]:
        if not free.acquire(blocking=False):
            status = HTTPStatus.SERVICE_UNAVAILABLE
            respond(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"too many scrapes at once\n"]
        let_others_first()
        try:
            return metrics(environment, respond)
        finally:
            free.release()

    return answer
