"""The external metrics put together: certificate, trust, server. Every replica serves, whether it leads or not.

metrics = ExternalMetrics(client, settings.external_metrics, loop.table(WorkloadUsage))
metrics.start()
...
metrics.stop()
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

from cluster import Client, ClusterError, Document, Key, Resource, merge_patch
from cluster.serving import Bounds, Listener, Reply, Request
from controllers.external_metrics.answers import Series, answer, refusal
from controllers.external_metrics.front_proxy import FrontProxy, FrontProxyError, front_proxy
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.recommend.outlook import ObservedUsage
from controllers.webhooks.certificate_keeper import CertificateKeeper
from controllers.webhooks.certificates import server_context

log = logging.getLogger(__name__)

API_SERVICES: Resource[Document] = Resource(
    "APIService", "apiservices", dict, group="apiregistration.k8s.io", namespaced=False
)
INTERVAL_SECONDS = 60.0
RETRY_SECONDS = 5.0


class ApiServiceKeeper(CertificateKeeper):
    """Keeps the certificate, and the trust of the APIService in it."""

    def trust(self, client: Client, name: str, bundle: str) -> None:
        """Write the bundle into the APIService where it differs. Raises ClusterError."""
        found = client.find(API_SERVICES, Key("", name))
        if found is not None and found.get("spec", {}).get("caBundle") != bundle:
            client.patch(API_SERVICES, Key("", name), merge_patch({"spec": {"caBundle": bundle}}))
            log.info("APIService %s trusts the certificate", name)


class ExternalMetrics:
    """Server of the metrics of workloads; `client` is its own."""

    def __init__(
        self,
        client: Client,
        settings: ExternalMetricsSettings,
        observed: ObservedUsage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Listen, without answering yet. Raises OSError for the address."""
        self._client = client
        self._settings = settings
        self._observed = observed
        self._clock = clock
        self._context = server_context()
        # Until it is known whose certificate to demand, none is good.
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._proxy: FrontProxy | None = None
        self._keeper = ApiServiceKeeper(client, settings, self._context)
        family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
        opened = socket.create_server((settings.address, settings.port), family=family, backlog=64)
        bounds = Bounds(
            connections=settings.most_connections,
            # Few API servers have few addresses, and a NAT makes them one.
            connections_by_address=settings.most_connections,
            body_bytes=0,
            request_seconds=settings.request_seconds,
        )
        self._server = Listener(self, opened, bounds, lambda: self._context, name="external-metrics")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="front-proxy", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def ready(self) -> bool:
        """True once there is a certificate and the front proxy is known."""
        return self._keeper.loaded and self._proxy is not None

    def start(self) -> None:
        """Begin to keep the certificate and the trust, and to serve."""
        self._keeper.start()
        self._thread.start()
        self._server.start()
        log.info("external metrics on port %d", self.port)

    def stop(self) -> None:
        """End in the opposite order."""
        self._stopping.set()
        self._server.stop()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._keeper.stop()

    def answer(self, request: Request) -> Reply:
        """Answer one request of the API server."""
        proxy = self._proxy
        if proxy is None or not request.client_name or not proxy.admits(request.client_name):
            return refusal(403, "Forbidden", "only the API server is answered")
        if request.method != "GET":
            return refusal(405, "MethodNotAllowed", "metrics are read")
        return answer(
            request.target,
            self.series,
            self._clock(),
            lead_seconds=self._settings.lead_seconds,
            fresh_seconds=self._settings.fresh_seconds,
        )

    def series(self, namespace: str) -> Iterator[Series]:
        """Return what is known of the workloads of a namespace; reports go on coming in meanwhile.

        Nothing until each node has had time to report: an autoscaler would take a part of the sum for all of it.
        """
        observed = self._observed
        if self._clock() < observed.whole_seconds:
            return
        for path, row in list(observed.rows.items()):
            kind, _, rest = path.partition("/")
            space, _, name = rest.partition("/")
            if space != namespace or row >= len(observed.heard_seconds):
                continue
            found = observed.ahead(path)
            if found is None:
                continue
            now, this, following, hour = found.now_cores, found.this_hour_cores, found.next_hour_cores, found.hour
            yield Series(space, kind, name, float(observed.heard_seconds[row]), hour, now, this, following)

    def follow(self) -> None:
        """Take up how the API server shows itself. Raises ClusterError, FrontProxyError."""
        found = front_proxy(self._client)
        if found == self._proxy:
            return
        # An authority that is no longer named stays in the context until a restart, but is admitted by name only.
        found.trusted_by(self._context)
        self._proxy = found
        log.info("answering the API server: %s", ", ".join(sorted(found.names)) or "any name of its authority")

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = INTERVAL_SECONDS
            try:
                self.follow()
            except (ClusterError, FrontProxyError) as error:
                log.warning("external metrics: %s", error)
                pause = RETRY_SECONDS
            self._stopping.wait(pause)
