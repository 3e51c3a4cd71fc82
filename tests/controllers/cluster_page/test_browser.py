"""The cluster page in a real browser: keys, filter, both schemes, a phone, and names that try to break it.

`KOORD_SCREENSHOTS=DIR` keeps pictures of what was seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.pages.headers import HEADERS
from cluster.serving import Reply, Request, listen
from controllers.cluster_page.page import render
from controllers.cluster_page.serve import HTML
from controllers.cluster_page.values import ClusterState
from tests.browser import KEYS, browser, picture
from tests.controllers.cluster_page.states import busy, hostile
from tests.waiting import wait_for


class Shown:
    """The state that is served; a test replaces it."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    def answer(self, request: Request) -> Reply:
        return Reply(200, render(self.state).encode(), HTML, HEADERS)


@contextmanager
def served(state: ClusterState) -> Iterator[tuple[Shown, str]]:
    shown = Shown(state)
    server = listen(shown, "127.0.0.1", 0)
    try:
        yield shown, f"http://127.0.0.1:{server.port}/"
    finally:
        server.stop()


@pytest.mark.slow
def test_the_page_lives_in_a_browser(tmp_path: Path) -> None:
    with browser(tmp_path) as window, served(busy()) as (shown, address):
        window.size(1280, 1500)
        window.open(address)
        assert window.run("return document.title") == "Cluster · koord-manager"
        assert window.background() > 200
        picture(window, "cluster-light", tmp_path)

        window.press("j")
        assert "node-2" in window.run("return document.activeElement.textContent")
        visible = "return [...document.querySelectorAll('#nodes tbody tr')].filter(r => !r.hidden).length"
        assert window.run(visible) == 7
        window.press("/")
        window.press("node-3")
        assert window.run(visible) == 1
        window.press(KEYS["Escape"])
        assert window.run(visible) == 7

        window.press("t")
        assert window.background() < 60
        picture(window, "cluster-dark", tmp_path)
        shown.state = hostile()
        wait_for(lambda: "window.broken" in window.run("return document.body.textContent"))
        window.run("document.querySelectorAll('*').forEach((e) => e.dispatchEvent(new Event('mouseover')))")
        assert window.run("return window.broken === undefined && document.querySelectorAll('script').length === 1")
        shown.state = busy()
        window.size(420, 900)
        window.open(address)
        wide = window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, "a phone scrolls tables, not the page"
        picture(window, "cluster-narrow", tmp_path)
        assert not window.errors(), "no error, and nothing that the policy had to stop"
