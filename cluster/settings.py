"""Settings of a client: rate, timeouts and retries; and options of a deletion."""

from dataclasses import dataclass, field

from cluster.rate_limit import Backoff
from cluster.resources import Document


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Rate, timeouts and retries of a client."""

    requests_per_second: float = 50.0
    """Sustained rate over all threads; watches count once, when they open."""
    burst: int = 100
    """Requests allowed at once after a quiet time."""
    timeout_seconds: float = 30.0
    """Longest wait for one answer."""
    connect_seconds: float = 5.0
    """Longest wait for a connection."""
    attempts: int = 6
    """Tries of one request, the first included."""
    patience_seconds: float = 60.0
    """No retry starts later than this after the call began."""
    backoff: Backoff = field(default_factory=Backoff)
    page_size: int = 500
    """Objects per chunk of a list."""
    user_agent: str = "koord"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a deletion: preconditions, grace period and propagation. None leaves the server's default."""

    uid: str = ""
    resource_version: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    """Foreground, Background or Orphan."""

    def document(self) -> Document:
        """The options as the API takes them in a request body."""
        wanted = {"uid": self.uid, "resourceVersion": self.resource_version}
        preconditions = {name: value for name, value in wanted.items() if value}
        body: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        if self.grace_period_seconds is not None:
            body["gracePeriodSeconds"] = self.grace_period_seconds
        if self.propagation_policy:
            body["propagationPolicy"] = self.propagation_policy
        return body


DEFAULT_DELETION = DeleteOptions()
