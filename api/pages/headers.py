"""Headers of a page beside those of every answer, and by which names it may be asked for. Pure."""

import ipaddress

from api.pages.assets import CONTENT_SECURITY_POLICY

HEADERS = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
)


def refused_host(host: str) -> str:
    """Return why a page asked for by this Host is not answered; empty where it is.

    A name in Host may be an attacker's that resolves to this address (DNS rebinding): addresses and localhost only.
    """
    if host and not _is_address_or_localhost(host):
        return f"ask for this page by an address or localhost, not by the name {host[:100]}"
    return ""


def _is_address_or_localhost(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
