"""Settings of [serving]: the agent's unix socket, and a TCP listener with TLS."""

from ipaddress import ip_address
from typing import Annotated

import msgspec

DEFAULT_SOCKET = "/run/koord/koordlet.sock"


class ServingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[serving]: gRPC on a unix socket that only its owner may open, and on TCP for clients with a certificate."""

    enabled: bool = False
    """Costs about 15 MB of resident memory."""
    socket: str = DEFAULT_SOCKET
    address: str = ""
    """`host:port` to listen on too, such as `0.0.0.0:9317`; empty listens on the socket only. Without the three files
    below it must be a loopback address, which every user of the host may then read."""
    certificate: str = ""
    """PEM file of the listener's certificate. The files are read again when they change; while they do not fit each
    other, the last ones hold."""
    key: str = ""
    """PEM file of its private key."""
    client_ca: str = ""
    """PEM file of the authorities whose clients are let in; others are refused."""
    max_streams: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8
    """Clients that may follow verdicts or measurements at once; each stream takes a thread."""
    queue_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256
    """Verdicts queued for a client that does not read; further ones are counted as lost, and it gets a new snapshot."""

    def __post_init__(self) -> None:
        files = (self.certificate, self.key, self.client_ca)
        if any(files) and not all(files):
            raise ValueError("TLS needs all of `certificate`, `key` and `client_ca`")
        if not self.address:
            return
        host, colon, port = self.address.rpartition(":")
        if not (colon and host and port.isdigit() and int(port) < 1 << 16):
            raise ValueError(f"`address` must be host:port, not {self.address!r}")
        if not self.has_tls and not is_loopback(host):
            raise ValueError(f"`address` {self.address}: without TLS only a loopback address may be served")

    @property
    def has_tls(self) -> bool:
        """Whether the listener asks for certificates."""
        return bool(self.certificate)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the host, an address (an IPv6 one perhaps in brackets) or a name."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
