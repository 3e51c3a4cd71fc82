"""Writer of this node's NodeMetric, in a thread of its own: always the newest status, until it is written.

The answer to each write has the object's spec, so that nothing watches it: each report learns its own interval.
"""

import contextlib
import logging
import threading
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from api.crds import NODE_METRIC, NodeMetric
from api.crds.node_metric import NodeMetricSpec, NodeMetricStatus
from cluster import AlreadyExists, Backoff, Client, ClusterError, Conflict, Key, NotFound, Patch, PatchType, custom

_log = logging.getLogger(__name__)

_NODE_METRICS = custom(NODE_METRIC)
_TRIES = 5
"""Tries of one write that met a conflict, or that had to make the object."""


class NodeMetricWriter:
    """Writes the status of one NodeMetric; `request` never waits, and a failed write is tried again with back-off."""

    def __init__(
        self, client: Client, node: str, *, backoff: Backoff, create: bool = True, random: Random | None = None
    ) -> None:
        """With `create` an object that is missing is made, as where no manager is installed."""
        self.failures = 0
        self.writes = 0
        self.requests = 0
        """Requests to the API server, failed ones included."""
        self.spec = NodeMetricSpec()
        """Spec as of the last answer; replaced in one step."""
        self._client = client
        self._key = Key("", node)
        self._backoff = backoff
        self._create = create
        self._random = random or Random()
        self._changed = threading.Condition()
        self._requested: NodeMetricStatus | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="node-metric", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request(self, status: NodeMetricStatus) -> None:
        """Request a status; one that was not written yet is replaced."""
        with self._changed:
            self._requested = status
            self._changed.notify_all()

    def stop(self, timeout_seconds: float) -> None:
        """Stop, after one more try of the last status."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        in_a_row = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested is not None or self._stopping)
                status, self._requested = self._requested, None
            if status is None:
                return
            in_a_row = 0 if self._write(status, in_a_row) else in_a_row + 1
            if in_a_row and not self._wait(status, in_a_row):
                return

    def _wait(self, status: NodeMetricStatus, in_a_row: int) -> bool:
        """Wait before the next try, of this status or a newer one; returns False when there is none."""
        with self._changed:
            if self._stopping:
                return self._requested is not None
            delay_seconds = self._backoff.delay_seconds(in_a_row - 1, self._random)
            self._changed.wait_for(lambda: self._stopping, delay_seconds)
            self._requested = self._requested or status
            return True

    def _write(self, status: NodeMetricStatus, in_a_row: int) -> bool:
        try:
            self.spec = self._patched(status).spec
        except ClusterError as error:
            self.failures += 1
            if not in_a_row:
                _log.warning("NodeMetric %s cannot be written; trying again: %s", self._key.name, error)
            return False
        if in_a_row:
            _log.info("NodeMetric %s is written again after %d failures", self._key.name, in_a_row)
        self.writes += 1
        return True

    def _patched(self, status: NodeMetricStatus) -> NodeMetric:
        """Replace the whole status, so that nothing of an earlier one stays."""
        value: Mapping[str, Any] = msgspec.to_builtins(status)
        patch = Patch(PatchType.JSON, [{"op": "add", "path": "/status", "value": value}])
        made = not self._create
        for attempt in range(_TRIES):
            try:
                self.requests += 1
                return self._client.patch(_NODE_METRICS, self._key, patch, subresource="status")
            except NotFound:
                if made:
                    raise
                made = True
                self._make()
            except Conflict as error:
                if attempt == _TRIES - 1:
                    raise
                self._client.pause(attempt, error.retry_after_seconds)
        raise AssertionError("unreachable")

    def _make(self) -> None:
        document = {
            "apiVersion": NODE_METRIC.api_version,
            "kind": NODE_METRIC.kind,
            "metadata": {"name": self._key.name},
            "spec": {},
        }
        self.requests += 1
        with contextlib.suppress(AlreadyExists):  # the manager was faster
            self._client.create(_NODE_METRICS, document)
