"""HTTPS listener of the webhooks: reviews by POST, health by GET."""

import socket
import ssl
from collections.abc import Callable

from cluster.serving import TEXT, Bounds, Listener, Request
from cluster.serving import Reply as HttpReply
from controllers.webhooks.routes import Reply
from controllers.webhooks.settings import WebhookSettings

Answerer = Callable[[str, bytes], Reply]
"""Answers a review: path and body in."""


class ReviewApi:
    """Answers requests; independent of how they arrive."""

    def __init__(self, answer: Answerer, ready: Callable[[], bool]) -> None:
        self._answer = answer
        self._ready = ready

    def answer(self, request: Request) -> HttpReply:
        """Answer one request."""
        if request.method == "POST":
            if not self._ready():
                return HttpReply.text(503, "first lists are not in")
            found = self._answer(request.path, request.body)
            return HttpReply(found.status, found.body, "application/json" if found.status == 200 else TEXT)
        if request.method != "GET":
            return HttpReply.text(405, "reviews are posted")
        if request.path in ("/healthz", "/livez"):
            return HttpReply(200, b"ok", TEXT)
        if request.path == "/readyz":
            return HttpReply(200, b"ok", TEXT) if self._ready() else HttpReply.text(503, "first lists are not in")
        return HttpReply.text(404, "there are /healthz, /livez and /readyz")


def webhook_listener(
    settings: WebhookSettings, context: ssl.SSLContext, answer: Answerer, ready: Callable[[], bool] = lambda: True
) -> Listener:
    """Return the listener, not started. `context` may get its certificate later: handshakes fail until then.

    Raises OSError for the address.
    """
    bounds = Bounds(
        connections=settings.most_connections,
        # Few API servers have few addresses, and a NAT makes them one.
        connections_by_address=settings.most_connections,
        body_bytes=settings.largest_body_bytes,
        request_seconds=settings.request_seconds,
        idle_seconds=settings.idle_seconds,
    )
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    opened = socket.create_server((settings.address, settings.port), family=family, backlog=128)
    return Listener(ReviewApi(answer, ready), opened, bounds, lambda: context, name="webhook")
