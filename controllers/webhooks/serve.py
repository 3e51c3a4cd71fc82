"""The webhooks put together: watches, certificate, server. Every replica serves, whether it leads or not.

webhooks = Webhooks(client, settings.webhook, registry)
webhooks.start()
...
webhooks.stop()
"""

import logging
import time

from prometheus_client import CollectorRegistry, Histogram

from cluster import Client
from controllers.webhooks.certificate_keeper import CertificateKeeper
from controllers.webhooks.certificates import server_context
from controllers.webhooks.routes import ROUTES, Reply, reply
from controllers.webhooks.server import webhook_listener
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.watched import WatchedCluster

log = logging.getLogger(__name__)

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


def webhook_seconds(registry: CollectorRegistry) -> Histogram:
    """Return the histogram of answers, registered."""
    return Histogram(
        "koord_manager_webhook_duration_seconds",
        "Time to answer a review, by path and result",
        ["path", "result"],
        buckets=_BUCKETS,
        registry=registry,
    )


class Webhooks:
    """All of admission. `client` is its own: reviews must not wait behind a controller's writes."""

    def __init__(self, client: Client, settings: WebhookSettings, registry: CollectorRegistry | None = None) -> None:
        self._settings = settings
        self._context = server_context()
        self._watched = WatchedCluster(client, settings)
        self._keeper = CertificateKeeper(client, settings, self._context)
        self._server = webhook_listener(settings, self._context, self._answer, lambda: self.ready)
        self._seconds = webhook_seconds(registry or CollectorRegistry())

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def ready(self) -> bool:
        """True once reviews are answered: the first lists are in and there is a certificate."""
        return self._watched.ready and self._keeper.loaded

    def start(self) -> None:
        """Begin to watch, to keep the certificate and to serve."""
        self._watched.start()
        self._keeper.start()
        self._server.start()
        log.info("webhooks on port %d", self.port)

    def stop(self) -> None:
        """End in the opposite order."""
        self._server.stop()
        self._keeper.stop()
        self._watched.stop()

    def _answer(self, path: str, body: bytes) -> Reply:
        started = time.monotonic()
        found = reply(path, body, self._watched.view, self._settings.exempt)
        # Any text may come as a path; only those that exist make series.
        known = path if path in ROUTES else "other"
        self._seconds.labels(known, found.result).observe(time.monotonic() - started)
        return found
