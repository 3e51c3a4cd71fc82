"""Answers requests for the cluster page, on loopback alone; made at most as often as a tenth of a CPU allows."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from api.pages.headers import HEADERS, refused_host
from cluster.resources import Key, Resource
from cluster.serving import Listener, Reply, Request, listen
from controllers.cluster_page.page import render
from controllers.cluster_page.settings import ClusterPageSettings
from controllers.cluster_page.summary import decoded, summary
from controllers.kinds import NODE, NODE_METRIC, SHOWN_PROFILE
from controllers.runtime.writes import kind_name

_log = logging.getLogger(__name__)

SHOWN: tuple[Resource[Any], ...] = (NODE, NODE_METRIC, SHOWN_PROFILE)
"""Kinds that the page reads."""
HTML = "text/html; charset=utf-8"
LOOK_SECONDS = 5.0
"""Longest wait for the loop, which may be planning."""
LEAST_SECONDS = 1.0
COST_RATIO = 10.0
"""A document is shown for this many times as long as it took to make."""

Looking = Callable[[float], Mapping[str, Mapping[Key, Any]] | None]


class ClusterPage:
    """The page of one manager."""

    def __init__(
        self,
        look: Looking,
        leading: Callable[[], bool],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._leading = leading
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._document = b""
        self._fresh_until_seconds = 0.0
        """Monotonic."""

    def answer(self, request: Request) -> Reply:
        """Answer one request."""
        refusal = refused_host(request.host)
        if refusal:
            return Reply.text(403, refusal)
        if request.method != "GET":
            return Reply.text(405, "this page is read-only")
        if request.path != "/":
            return Reply.text(404, "there is the cluster's page at /")
        with self._lock:
            if self._monotonic() >= self._fresh_until_seconds and not self._make():
                return Reply.text(503, "the first lists are not in, or the manager is planning: ask again")
            return Reply(200, self._document, HTML, HEADERS)

    def _make(self) -> bool:
        objects = self._look(LOOK_SECONDS)
        if objects is None:
            return False
        started = self._monotonic()
        state = summary(
            objects[kind_name(NODE)].values(),
            list(objects[kind_name(NODE_METRIC)].values()),
            decoded(objects[kind_name(SHOWN_PROFILE)].values()),
            self._clock(),
            version=_version(),
            leading=self._leading(),
        )
        self._document = render(state).encode()
        now = self._monotonic()
        self._fresh_until_seconds = now + max(LEAST_SECONDS, COST_RATIO * (now - started))
        return True


def serve_page(settings: ClusterPageSettings, look: Looking, leading: Callable[[], bool]) -> Listener | None:
    """Serve in the background; None where the settings or the machine do not allow it, which ends no manager."""
    if not settings.enabled:
        return None
    try:
        server = listen(ClusterPage(look, leading), "127.0.0.1", settings.port, name="page")
    except OSError as error:
        _log.warning("no cluster page on 127.0.0.1:%d: %s; choose another port in [page]", settings.port, error)
        return None
    _log.info("the cluster's page on http://127.0.0.1:%d/", server.port)
    return server


def _version() -> str:
    try:
        return version("koord")
    except PackageNotFoundError:
        return "unknown"
