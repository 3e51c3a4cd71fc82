"""Who gets the node page, and with which headers: a WSGI application in front of the one with the metrics."""

import ipaddress
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from api.pages.headers import HEADERS, refused_host
from koordlet.node_page.page import render
from koordlet.node_page.settings import PageSettings
from koordlet.node_page.values import NodeState

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


_HEADERS = (*HEADERS, ("X-Content-Type-Options", "nosniff"))


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
        headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(document))), *_HEADERS]
        respond(_status(HTTPStatus.OK), headers)
        return [] if environment.get("REQUEST_METHOD") == "HEAD" else [document]

    return answer


def refusal_of(environment: "WSGIEnvironment", *, remote: bool) -> str:
    """Return why a request is not answered; empty where it is."""
    if not remote and not _is_loopback(str(environment.get("REMOTE_ADDR", ""))):
        return "the page is served to this host only: kubectl port-forward, or [page] remote = true"
    return refused_host(str(environment.get("HTTP_HOST", "")))


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _plain(respond: "StartResponse", status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    respond(_status(status), [("Content-Type", "text/plain; charset=utf-8"), *headers, *_HEADERS])
    return [f"{text}\n".encode()]


def _status(status: HTTPStatus) -> str:
    return f"{status.value} {status.phrase}"
