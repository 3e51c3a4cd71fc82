"""Settings of [nri]: the plugin inside containerd or CRI-O."""

from typing import Annotated, Literal

import msgspec

DEFAULT_SOCKET = "/var/run/nri/nri.sock"


class NriSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[nri]: containers start with what the rules of `[hooks]` say (docs/hooks.md). Needs the `grpc` extra."""

    enabled: Literal["auto", "on", "off"] = "auto"
    """Whether the runtime is answered; `auto`: with enforcement in a cluster. Containers are changed only with
    `[enforcer] enabled`."""
    socket: str = DEFAULT_SOCKET
    """The runtime's NRI socket, below `root`."""
    plugin_name: str = "koordlet_nri"
    plugin_index: Annotated[str, msgspec.Meta(pattern="^[0-9][0-9]$")] = "00"
    """Place among the plugins of the runtime: two digits, asked in ascending order."""
    connect_timeout_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 6.0
    """Time for the connection and the runtime's first question; then it is tried again."""
    backoff_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0
    """First pause between two attempts; it doubles up to a minute, with a tenth of jitter."""
    request_timeout_milliseconds: Annotated[int, msgspec.Meta(ge=10, le=10_000)] = 500
    """Time after which the runtime should go on without an answer, where it can be asked to."""
