"""What health, readiness and metrics of a program answer. No clock, no I/O."""

from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from cluster.serving import TEXT, Reply, Request

STUCK_SECONDS = 60.0
"""Time without a round after which the loop counts as hung; the longest plan of a large cluster takes a tenth of it."""
SILENT_SECONDS = 300.0
"""Silence of one watch, while another hears the API server, after which it counts as dead: an informer resumes one that
is silent for 90 s, and a server sends bookmarks each minute."""


def fault_of(idle_seconds: float, silent_seconds: Mapping[str, float], *, synced: bool) -> str:
    """Return what is wrong with a loop idle, and watches silent, for these times; empty for nothing."""
    if idle_seconds > STUCK_SECONDS:
        return f"the loop has not begun a round for {idle_seconds:.0f} s"
    if not synced or min(silent_seconds.values(), default=0.0) > SILENT_SECONDS / 2:
        return ""
    dead = sorted(name for name, silent in silent_seconds.items() if silent > SILENT_SECONDS)
    return f"nothing was heard of {', '.join(dead)} for {SILENT_SECONDS:.0f} s" if dead else ""


class Health:
    """Answers the probes of the kubelet and the scrapes of Prometheus, from any thread and without waiting."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool], fault: Callable[[], str]) -> None:
        self._registry = registry
        self._ready = ready
        self._fault = fault

    def answer(self, request: Request) -> Reply:
        """Answer one request."""
        if request.method == "GET":
            if request.path in ("/healthz", "/livez"):
                fault = self._fault()
                return Reply.text(500, fault) if fault else Reply(200, b"ok", TEXT)
            if request.path == "/readyz":
                return Reply(200, b"ok", TEXT) if self._ready() else Reply.text(503, "first lists are not in")
            if request.path == "/metrics":
                return Reply(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)
        return Reply.text(404, "there are /healthz, /livez, /readyz and /metrics")
