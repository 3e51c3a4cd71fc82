"""Settings of the node page."""

import msgspec


class PageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[page]: the node page at `/` of the Prometheus endpoint's address; read-only."""

    enabled: bool = True
    """Without it `/` answers with the metrics, as every path does."""
    remote: bool = False
    """Serve it to other hosts too, such as the API server's proxy. Without it only to connections from this host's
    loopback, as `kubectl port-forward` makes them: the page names pods, cgroups and what was done to them."""
