"""Settings of the cluster page."""

from typing import Annotated

import msgspec


class ClusterPageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table `[page]`: the cluster page; read-only, for connections of this host or pod, as `kubectl port-forward`
    makes them: it names nodes, pods and workloads."""

    enabled: bool = True
    """Serve it; without it WorkloadProfiles are watched only by the controllers that need them."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8081
    """Port on 127.0.0.1; 0 takes a free one, which the log names."""
