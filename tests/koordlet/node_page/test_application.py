"""Who gets the page: this host, by an address; others only where the settings say so. Nothing but GET and HEAD."""

from typing import Any

import pytest

from koordlet.node_page.application import refusal_of, with_page
from koordlet.node_page.settings import PageSettings
from tests.koordlet.node_page.states import quiet

LOCAL = {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:9316", "REQUEST_METHOD": "GET", "PATH_INFO": "/"}


def ask(
    environment: dict[str, str], settings: PageSettings | None = None, *, has_state: bool = True
) -> tuple[str, dict[str, str], str]:
    said: list[tuple[str, dict[str, str]]] = []

    def respond(status: str, headers: list[tuple[str, str]]) -> None:
        said.append((status, dict(headers)))

    def metrics(_environment: object, answer: Any) -> list[bytes]:
        answer("200 OK", [])
        return [b"metrics"]

    state = quiet() if has_state else None
    application: Any = with_page(settings or PageSettings(), lambda: state, metrics)
    body = b"".join(application(LOCAL | environment, respond)).decode()
    return (*said[0], body)


def test_the_page_is_at_the_top_and_everything_else_is_as_before() -> None:
    status, headers, body = ask({})
    assert status == "200 OK"
    assert body.startswith("<!doctype html>")
    assert headers["Content-Length"] == str(len(body.encode()))
    assert ask({"PATH_INFO": "/metrics"})[2] == "metrics"
    assert ask({}, PageSettings(enabled=False))[2] == "metrics"


def test_the_policy_allows_the_pages_own_style_and_script_alone() -> None:
    policy = ask({})[1]["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


def test_a_head_has_no_body_and_a_post_is_refused() -> None:
    assert ask({"REQUEST_METHOD": "HEAD"})[2] == ""
    assert ask({"REQUEST_METHOD": "POST"})[0].startswith("405")


def test_before_the_first_tick_the_page_is_not_there_yet() -> None:
    assert ask({}, has_state=False)[0].startswith("503")


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.1", "fe80::1", "::ffff:10.0.0.7", "", "not an address"])
def test_another_host_is_refused_unless_settings_say_otherwise(address: str) -> None:
    environment = {"REMOTE_ADDR": address}
    assert ask(environment)[0].startswith("403")
    assert ask(environment, PageSettings(remote=True))[0] == "200 OK"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_this_host(address: str) -> None:
    assert not refusal_of(LOCAL | {"REMOTE_ADDR": address}, remote=False)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9316", "127.0.0.1.evil.example", "[::1", "[evil]:1"])
def test_a_name_that_may_have_been_rebound_is_refused(host: str) -> None:
    refusal = refusal_of(LOCAL | {"HTTP_HOST": host}, remote=True)
    assert bool(refusal) == (host != "[::1")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9316", "127.0.0.1:9316", "[::1]:9316", "10.2.3.4", ""])
def test_addresses_and_localhost_are_answered(host: str) -> None:
    assert not refusal_of(LOCAL | {"HTTP_HOST": host}, remote=True)
