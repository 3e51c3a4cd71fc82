"""Settings of the external metrics: table `[external_metrics]` of koord-manager."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]


class ExternalMetricsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Server, certificate and lead of the forecast."""

    enabled: bool = False
    """Serve external metrics. Autoscalers ask only where the APIService is installed."""
    address: str = "0.0.0.0"
    """Address to listen on."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9877
    """Port to listen on; 0 takes a free one."""
    namespace: str = "koord-system"
    """Namespace of the Service and the Secret."""
    service: str = "koord-metrics"
    """Service that the API server calls; the certificate is for its names."""
    secret: str = "koord-metrics-certificate"
    """Secret that holds the certificate, shared by all replicas."""
    api_service: str = "v1beta1.external.metrics.k8s.io"
    """Name of the APIService that gets the certificate."""
    certificate_days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 365
    """Lifetime of a certificate. It is replaced when a third of it is left."""
    lead_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 900.0
    """Time before the next hour from which its forecast counts: what a replica takes to be added and to be of use."""
    fresh_seconds: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    """A workload of which no report told for this long has no metric, which keeps its replicas as they are."""
    most_connections: Count = 64
    """Connections at once; for one more the idlest is closed."""
    request_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Longest time for a handshake, and for a request from its first byte to its answer."""

    @property
    def configuration(self) -> str:
        """Name of the APIService."""
        return self.api_service

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names of the Service that the certificate must be for."""
        local = f"{self.service}.{self.namespace}.svc"
        return (local, f"{local}.cluster.local", f"{self.service}.{self.namespace}", self.service)
