"""Settings of [serving]: the agent's unix socket."""

from typing import Annotated

import msgspec

DEFAULT_SOCKET = "/run/koord/koordlet.sock"


class ServingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[serving]: gRPC on a unix socket that only its owner may open."""

    enabled: bool = False
    """Costs about 15 MB of resident memory."""
    socket: str = DEFAULT_SOCKET
    max_streams: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8
    """Clients that may follow verdicts at once; each takes a thread."""
    queue_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256
    """Verdicts queued for a client that does not read; further ones are counted as lost, and it gets a new snapshot."""
