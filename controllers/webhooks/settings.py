"""Settings of the webhooks: table `[webhook]` of koord-manager."""

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Server, certificate and switches of the rules."""

    enabled: bool = False
    """Serve webhooks. The API server asks only where the webhook configurations are installed."""
    address: str = "0.0.0.0"
    """Address to listen on."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9876
    """Port to listen on; 0 takes a free one."""
    namespace: str = "koord-system"
    """Namespace of the Service and the Secret; its pods are never looked at."""
    service: str = "koord-webhook"
    """Service that the API server calls; the certificate is for its names."""
    secret: str = "koord-webhook-certificate"
    """Secret that holds the certificate, shared by all replicas."""
    configuration: str = "koord-webhooks"
    """Name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration that get the certificate."""
    names: tuple[str, ...] = ()
    """Further names that the certificate is for: of a server outside the cluster, or behind a load balancer."""
    certificate_days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 365
    """Lifetime of a certificate. It is replaced when a third of it is left."""
    exempt_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease")
    """Namespaces whose pods are never looked at, besides our own."""
    restricted_classes: tuple[str, ...] = ("SYSTEM",)
    """QoS classes that take the label `admission.koordinator.sh/qos-classes` of the pod's namespace."""
    multi_quota_tree: bool = False
    """Keep pods of a quota tree on the nodes of the tree's ElasticQuotaProfile."""
    quota_admission: bool = False
    """Refuse pods whose quota has no more room, by its annotation `admission` or its max, when they are created. What
    the scheduler has not counted yet is not counted here: pods that come together may exceed the room until then."""
    validate_devices: bool = False
    """Hold requests for GPUs to the protocol's units."""
    largest_body_bytes: Count = 8 << 20
    """Longest review; the API server's own limit of an object is 3 MiB, and a review may hold two."""
    most_connections: Count = 256
    """Connections at once; for one more the idlest is closed."""
    request_seconds: Seconds = 10.0
    """Longest time for a handshake, and for a request from its first byte to its answer."""
    idle_seconds: Seconds = 120.0
    """Time after which a connection without requests is closed."""

    @property
    def exempt(self) -> frozenset[str]:
        """All namespaces whose pods are never looked at."""
        return frozenset((*self.exempt_namespaces, self.namespace))

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names of the Service that the certificate must be for."""
        local = f"{self.service}.{self.namespace}.svc"
        return (local, f"{local}.cluster.local", f"{self.service}.{self.namespace}", self.service, *self.names)
