"""Keeps the certificate: the Secret of all replicas, this server's TLS context, and the trust of the API server."""

import base64
import logging
import ssl
import threading
import time
from collections.abc import Callable
from random import Random

from cluster import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    AlreadyExists,
    Client,
    ClusterError,
    Conflict,
    Document,
    Key,
    Resource,
    strategic_patch,
)
from controllers.webhooks import certificates, rotation
from controllers.webhooks.settings import WebhookSettings

log = logging.getLogger(__name__)

CONFIGURATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
INTERVAL_SECONDS = 60.0
RETRY_SECONDS = 5.0


class CertificateKeeper:
    """Looks at the Secret each minute, takes the step that is due, and brings server and API server in line with it."""

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings,
        context: ssl.SSLContext,
        *,
        random: Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._settings = settings
        self._context = context
        self._random = random or Random()
        self._clock = clock
        self._key = Key(settings.namespace, settings.secret)
        self._loaded: certificates.Pair | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificate", daemon=True)

    @property
    def loaded(self) -> bool:
        """True once the server has a certificate."""
        return self._loaded is not None

    def start(self) -> None:
        """Begin; the certificate is there soon afterwards (`loaded`)."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10.0)

    def keep(self) -> None:
        """Take the step that is due. Raises ClusterError and CertificateError."""
        kept = self._stepped()
        if kept.current is not None and kept.current != self._loaded:
            certificates.load(self._context, kept.current)
            self._loaded = kept.current
            log.info("serving with a certificate of Secret %s", self._key)
        for resource in CONFIGURATIONS:
            self._trust(resource, base64.b64encode(kept.bundle.encode()).decode())

    def _stepped(self) -> rotation.Kept:
        secret = self._client.find(SECRETS, self._key)
        before = rotation.decoded(secret)
        settings = self._settings
        after = rotation.step(
            before,
            settings.server_names,
            self._clock(),
            lambda: certificates.issue(settings.server_names, settings.certificate_days),
        )
        if after == before:
            return before
        try:
            return rotation.decoded(self._stored(secret, rotation.encoded(after)))
        except (AlreadyExists, Conflict):
            # Another replica was first: its content counts.
            return rotation.decoded(self._client.find(SECRETS, self._key))

    def _stored(self, secret: Document | None, content: Document) -> Document:
        if secret is None:
            namespace, name = self._key
            metadata = {"name": name, "namespace": namespace, **content["metadata"]}
            return self._client.create(SECRETS, {"type": "Opaque", "metadata": metadata, "data": content["data"]})
        metadata = secret["metadata"] | content["metadata"]
        return self._client.update(SECRETS, {**secret, "metadata": metadata, "data": content["data"]})

    def _trust(self, resource: Resource[Document], bundle: str) -> None:
        found = self._client.find(resource, Key("", self._settings.configuration))
        webhooks = (found or {}).get("webhooks") or ()
        stale = [item["name"] for item in webhooks if item.get("clientConfig", {}).get("caBundle") != bundle]
        if stale:
            wanted = [{"name": name, "clientConfig": {"caBundle": bundle}} for name in stale]
            key = Key("", self._settings.configuration)
            self._client.patch(resource, key, strategic_patch({"webhooks": wanted}))
            log.info("%s %s trusts the certificate for %s", resource.kind, key.name, ", ".join(stale))

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = INTERVAL_SECONDS
            try:
                self.keep()
            except (ClusterError, certificates.CertificateError) as error:
                log.warning("certificate of the webhooks: %s", error)
                pause = RETRY_SECONDS
            except Exception:
                # A certificate that is no longer kept ends admission in some months: go on.
                log.exception("certificate of the webhooks")
            self._stopping.wait(pause * (1.0 + 0.2 * self._random.random()))
