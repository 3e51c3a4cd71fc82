"""The page in a real browser: keys, filter, renewal, both schemes, and names that try to break it.

`KOORD_SCREENSHOTS=DIR` keeps pictures of what was seen.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from koordlet.node_page.application import with_page
from koordlet.node_page.settings import PageSettings
from koordlet.node_page.values import NodeState
from tests.browser import KEYS, Browser, browser, picture
from tests.koordlet.node_page.states import busy, hostile
from tests.waiting import wait_for


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        pass


class Node:
    """What the served page shows; a test replaces it."""

    def __init__(self, state: NodeState) -> None:
        self.state = state


def nothing_else(_environment: object, respond: Any) -> list[bytes]:
    respond("404 Not Found", [])
    return []


@contextmanager
def served(state: NodeState) -> Iterator[tuple[Node, str]]:
    node = Node(state)
    server = make_server(
        "127.0.0.1", 0, with_page(PageSettings(), lambda: node.state, nothing_else), handler_class=Quiet
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield node, f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def visible_rows(window: Browser) -> int:
    return int(window.run("return [...document.querySelectorAll('#victims tbody tr')].filter(r => !r.hidden).length"))


@pytest.mark.slow
def test_the_page_lives_in_a_browser(tmp_path: Path) -> None:
    with browser(tmp_path) as window, served(busy()) as (node, address):
        window.size(1280, 1700)
        window.open(address)
        assert window.run("return document.title") == "node-7 · koordlet"
        assert window.run("return document.getElementById('state').textContent") == "live", "the script runs"
        assert window.background() > 200
        picture(window, "light", tmp_path)

        window.press("j")
        assert "shop/web-0/web" in window.run("return document.activeElement.textContent")
        window.press("jk")
        assert "shop/web-0/web" in window.run("return document.activeElement.textContent")
        focused = window.run("return document.activeElement.dataset.key")

        node.state = replace(node.state, mode="dry run")
        wait_for(lambda: "dry run" in window.run("return document.body.textContent"))
        assert window.run("return document.activeElement.dataset.key") == focused, "the focus stays on its row"

        assert visible_rows(window) > 1
        window.press("/")
        window.press("cron")
        assert visible_rows(window) == 1
        window.press(KEYS["Escape"])
        assert visible_rows(window) > 1
        window.press("?")
        assert window.run("return document.getElementById('keys').open")
        window.press(KEYS["Escape"])
        assert not window.run("return document.getElementById('keys').open")

        window.press("t")
        assert window.background() < 60
        picture(window, "dark", tmp_path)
        window.press("p")
        assert window.run("return document.getElementById('state').textContent") == "paused"
        assert not window.errors(), "no error, and nothing that the policy had to stop"

        window.size(420, 900)
        wide = window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, "a phone scrolls tables, not the page"
        picture(window, "narrow", tmp_path)

        node.state = hostile()
        window.size(1280, 1400)
        window.open(address)
        window.run("document.querySelectorAll('*').forEach((e) => e.dispatchEvent(new Event('mouseover')))")
        assert window.run("return window.broken === undefined && document.querySelectorAll('script').length === 1")
        assert window.run("return document.body.textContent.includes('<script>window.broken=1</script>')")
        assert not window.errors()
        picture(window, "hostile", tmp_path)
