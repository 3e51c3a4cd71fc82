"""Who gets the node page, and with which headers: a WSGI application in front of the one with the metrics."""

import ipaddress
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from koordlet.node_page.assets import CONTENT_SECURITY_POLICY
from koordlet.node_page.page import render
from koordlet.node_page.settings import PageSettings
from koordlet.node_page.values import NodeState

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_SAFE = [
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


def with_page(
    settings: PageSettings, state_of: Callable[[], NodeState | None], others: "WSGIApplication"
) -> "WSGIApplication":
    """Return an application that answers `/` with the page and passes other paths on."""
    if not settings.enabled:
        return others

    def answer(environment: "WSGIEnvironment", respond: "StartResponse") -> Iterable[bytes]:
        if environment.get("PATH_INFO") not in ("", "/"):
            return others(environment, respond)
        if environment.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _plain(respond, HTTPStatus.METHOD_NOT_ALLOWED, "this page is read-only")
        refusal = refusal_of(environment, remote=settings.remote)
        if refusal:
            return _plain(respond, HTTPStatus.FORBIDDEN, refusal)
        state = state_of()
        if state is None:
            return _plain(respond, HTTPStatus.SERVICE_UNAVAILABLE, "no tick yet", ("Retry-After", "1"))
        document = render(state).encode()
        headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(document))), *_SAFE]
        respond(_status(HTTPStatus.OK), headers)
        return [] if environment.get("REQUEST_METHOD") == "HEAD" else [document]

    return answer


def refusal_of(environment: "WSGIEnvironment", *, remote: bool) -> str:
    """Return why a request is not answered; empty where it is.

    A name in Host may be an attacker's that resolves to this address (DNS rebinding): addresses and localhost only.
    """
    if not remote and not _is_loopback(str(environment.get("REMOTE_ADDR", ""))):
        return "the page is served to this host only: kubectl port-forward, or [page] remote = true"
    host = str(environment.get("HTTP_HOST", ""))
    if host and not _is_address_or_localhost(host):
        return f"ask for this page by an address or localhost, not by the name {host[:100]}"
    return ""


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _is_address_or_localhost(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(respond: "StartResponse", status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    respond(_status(status), [("Content-Type", "text/plain; charset=utf-8"), *headers, *_SAFE])
    return [f"{text}\n".encode()]


def _status(status: HTTPStatus) -> str:
    return f"{status.value} {status.phrase}"
