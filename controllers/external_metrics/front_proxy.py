"""Who may ask: the API server alone, by the client certificate that it proxies with.

The API server has authenticated and authorised a request before it passes it on (kube-aggregator). It shows itself by
a certificate of the authority in the ConfigMap `extension-apiserver-authentication`; no other client gets past the
handshake, so no header has to be believed.
"""

import ssl
from dataclasses import dataclass

import msgspec

from cluster import CONFIG_MAPS, Client, Key

AUTHENTICATION = Key("kube-system", "extension-apiserver-authentication")


class FrontProxyError(Exception):
    """The cluster does not say how its API server shows itself; the message names the key."""


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the API server shows itself."""

    authority: str
    """PEM."""
    names: frozenset[str]
    """Common names of its certificate; empty for any that the authority signed."""

    def admits(self, client_name: str) -> bool:
        """Return whether a certificate of the authority with this common name is the API server's."""
        return not self.names or client_name in self.names

    def trusted_by(self, context: ssl.SSLContext) -> None:
        """Have a context demand its certificate. Raises FrontProxyError for an authority that cannot be read."""
        try:
            context.load_verify_locations(cadata=self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise FrontProxyError(f"{AUTHENTICATION}: requestheader-client-ca-file: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED


def front_proxy(client: Client) -> FrontProxy:
    """Return what the cluster says. Raises ClusterError, FrontProxyError."""
    data = client.get(CONFIG_MAPS, AUTHENTICATION).get("data") or {}
    authority = data.get("requestheader-client-ca-file")
    if not isinstance(authority, str) or "BEGIN CERTIFICATE" not in authority:
        raise FrontProxyError(
            f"{AUTHENTICATION} has no requestheader-client-ca-file: start the API server with"
            " --requestheader-client-ca-file"
        )
    try:
        names = msgspec.json.decode(data.get("requestheader-allowed-names") or "[]", type=list[str])
    except msgspec.DecodeError as error:
        raise FrontProxyError(f"{AUTHENTICATION}: requestheader-allowed-names: {error}") from error
    return FrontProxy(authority, frozenset(names))
