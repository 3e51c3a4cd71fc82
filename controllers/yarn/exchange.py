"""Asks the ResourceManagers for their nodes and sends them offers, in one thread for each cluster."""

import logging
import threading
import time
from collections.abc import Callable
from random import Random

from prometheus_client import CollectorRegistry, Counter, Gauge

from cluster import Backoff
from controllers.yarn.board import Board
from controllers.yarn.resource_managers import RefusedError, ResourceManagers, UnreachableError, YarnError

_log = logging.getLogger(__name__)

JOIN_SECONDS = 10.0


class ExchangeMetrics:
    """Metrics of the exchange with ResourceManagers."""

    def __init__(self, registry: CollectorRegistry, prefix: str = "koord_yarn_copilot") -> None:
        self.requests = Counter(
            f"{prefix}_resource_manager_requests",
            "Requests to ResourceManagers; code 0 is no answer.",
            ("cluster", "method", "code"),
            registry=registry,
        )
        self.offers = Counter(
            f"{prefix}_offers", "Resources sent to NodeManagers.", ("cluster", "result"), registry=registry
        )
        self.nodes = Gauge(f"{prefix}_node_managers", "NodeManagers by state.", ("cluster", "state"), registry=registry)
        self.reachable = Gauge(
            f"{prefix}_reachable", "1 while an active ResourceManager answers.", ("cluster",), registry=registry
        )


class Exchange:
    """The exchange with one cluster. `leading` returns whether this process may set resources."""

    def __init__(
        self,
        client: ResourceManagers,
        board: Board,
        *,
        leading: Callable[[], bool],
        metrics: ExchangeMetrics,
        poll_seconds: float,
        overcommit_timeout_seconds: float,
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._board = board
        self._leading = leading
        self._metrics = metrics
        self._poll_seconds = poll_seconds
        self._overcommit_timeout_seconds = overcommit_timeout_seconds
        self._backoff = Backoff(poll_seconds, 12 * poll_seconds)
        self._random = random or Random()
        self._failures = 0
        self._active = ""
        self._problem = ""
        self._states: set[str] = set()
        self._stopping = threading.Event()
        self._news = board.news(client.name)
        self._thread = threading.Thread(target=self._run, name=f"yarn-{client.name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the request that is under way."""
        self._stopping.set()
        self._news.set()
        self._thread.join(JOIN_SECONDS)
        self._client.close()

    def once(self) -> bool:
        """Ask for the nodes and send what is offered to them; return whether the cluster answered."""
        name = self._client.name
        self._leads()
        try:
            nodes = self._client.nodes()
        except YarnError as error:
            with self._board.held():
                self._board.forget(name, str(error))
            if str(error) != self._problem:
                _log.warning("cluster %s: nothing is changed while it does not answer: %s", name, error)
            self._problem = str(error)
            self._metrics.reachable.labels(name).set(0)
            return False
        if self._active != self._client.active or self._problem:
            _log.info("cluster %s: %s is active, with %d nodes", name, self._client.active, len(nodes))
        self._active, self._problem = self._client.active, ""
        self._metrics.reachable.labels(name).set(1)
        states = [each.state for each in nodes.values()]
        self._states |= set(states)
        for state in self._states:
            self._metrics.nodes.labels(name, state).set(states.count(state))
        with self._board.held():
            self._board.report(name, nodes)
        return self._send()

    def _send(self) -> bool:
        name = self._client.name
        with self._board.held():
            wanted = list(self._board.offers(name))
        for node_id in wanted:
            if self._stopping.is_set() or not self._leads():
                return True
            with self._board.held():
                offer = self._board.send(name, node_id)
            if offer is None or offer.capability == offer.seen:
                continue
            try:
                self._client.set_resource(node_id, offer.capability, self._overcommit_timeout_seconds)
            except YarnError as error:
                self._metrics.offers.labels(name, "failed").inc()
                _log.warning("cluster %s: %s is not set to %s: %s", name, node_id, offer.capability, error)
                if isinstance(error, RefusedError | UnreachableError):
                    return False
                continue
            self._metrics.offers.labels(name, "sent").inc()
            _log.info(
                "cluster %s: %s is set from %s to %s: %s", name, node_id, offer.seen, offer.capability, offer.reason
            )
        return True

    def _leads(self) -> bool:
        """Return whether resources may be set; offers do not outlive the lead in which they were made."""
        if self._leading():
            return True
        with self._board.held():
            self._board.withdraw(self._client.name)
        return False

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                answered = self.once()
            except Exception as error:  # noqa: BLE001 - an unforeseen answer must not end the thread
                _log.error("cluster %s: %r", self._client.name, error, exc_info=error)
                with self._board.held():
                    self._board.forget(self._client.name, "its answer could not be taken in")
                answered = False
            self._failures = 0 if answered else self._failures + 1
            wait = self._poll_seconds if answered else self._backoff.delay_seconds(self._failures, self._random)
            wait = max(wait - (time.monotonic() - started), 0.0)
            if not answered:
                self._stopping.wait(wait)
            elif self._news.wait(wait):
                self._news.clear()
