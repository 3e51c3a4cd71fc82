"""Keeps the certificate: the Secret of all replicas, this server's TLS context, and the trust of the API server."""

import base64
import logging
import ssl
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Protocol

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

log = logging.getLogger(__name__)

CONFIGURATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
INTERVAL_SECONDS = 60.0
RETRY_SECONDS = 5.0


class CertificateSettings(Protocol):
    """What a certificate is for, and who is to trust it."""

    @property
    def namespace(self) -> str:
        """Namespace of the Secret."""
        ...

    @property
    def secret(self) -> str:
        """Name of the Secret."""
        ...

    @property
    def configuration(self) -> str:
        """Name of the objects that tell the API server which authority to trust."""
        ...

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names that the certificate is for."""
        ...

    @property
    def certificate_days(self) -> int:
        """Lifetime."""
        ...


class CertificateKeeper:
    """Looks at the Secret each minute, takes the step that is due, and brings server and API server in line with it."""

    def __init__(
        self,
        client: Client,
        settings: CertificateSettings,
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
        self.trust(self._client, self._settings.configuration, base64.b64encode(kept.bundle.encode()).decode())

    def trust(self, client: Client, name: str, bundle: str) -> None:
        """Have the API server trust a bundle (PEM in base64) where it is told to call us. Raises ClusterError."""
        for resource in CONFIGURATIONS:
            _trust(client, resource, name, bundle)

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

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = INTERVAL_SECONDS
            try:
                self.keep()
            except (ClusterError, certificates.CertificateError) as error:
                log.warning("certificate of Secret %s: %s", self._key, error)
                pause = RETRY_SECONDS
            except Exception:
                # A certificate that is no longer kept ends service in some months: go on.
                log.exception("certificate of Secret %s", self._key)
            self._stopping.wait(pause * (1.0 + 0.2 * self._random.random()))


def _trust(client: Client, resource: Resource[Document], name: str, bundle: str) -> None:
    found = client.find(resource, Key("", name))
    webhooks = (found or {}).get("webhooks") or ()
    stale = [item["name"] for item in webhooks if item.get("clientConfig", {}).get("caBundle") != bundle]
    if stale:
        wanted = [{"name": each, "clientConfig": {"caBundle": bundle}} for each in stale]
        client.patch(resource, Key("", name), strategic_patch({"webhooks": wanted}))
        log.info("%s %s trusts the certificate for %s", resource.kind, name, ", ".join(stale))
