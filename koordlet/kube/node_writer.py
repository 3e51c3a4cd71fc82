"""Writer of one annotation of the node object, in a thread of its own: always the latest value, until it is written."""

import logging
import threading
from random import Random

from cluster import Backoff, Client, ClusterError, Key, merge_patch
from cluster.resources import NODES

_log = logging.getLogger(__name__)

_NODES = NODES.of(dict)


class NodeAnnotationWriter:
    """Annotation writer; `request` never waits, and a refused write is retried with back-off unless a newer value
    came."""

    def __init__(self, client: Client, node: str, annotation: str, *, backoff: Backoff, random: Random | None = None):
        self.failures = 0
        self.writes = 0
        self._client = client
        self._key = Key("", node)
        self._annotation = annotation
        self._backoff = backoff
        self._random = random or Random()
        self._changed = threading.Condition()
        self._requested: str | None = None
        self._pending = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="node-annotation", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request(self, value: str | None) -> None:
        """Request a value of the annotation; None removes it."""
        with self._changed:
            self._requested, self._pending = value, True
            self._changed.notify_all()

    def stop(self, timeout_seconds: float) -> None:
        """Stop, after one more try of the last value."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        in_a_row = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._stopping)
                if not self._pending:
                    return
                request, self._pending = self._requested, False
            in_a_row = 0 if self._write(request, in_a_row) else in_a_row + 1
            if in_a_row and not self._retry(in_a_row):
                return

    def _retry(self, in_a_row: int) -> bool:
        """Wait, and retry unless a newer value was requested; returns False when asked to stop."""
        with self._changed:
            wait_seconds = self._backoff.delay_seconds(in_a_row - 1, self._random)
            self._changed.wait_for(lambda: self._stopping, wait_seconds)
            if self._stopping:
                return self._pending
            self._pending = True
            return True

    def _write(self, value: str | None, in_a_row: int) -> bool:
        try:
            self._client.patch(_NODES, self._key, merge_patch({"metadata": {"annotations": {self._annotation: value}}}))
        except ClusterError as error:
            self.failures += 1
            if not in_a_row:
                _log.warning("the annotation of node %s cannot be written; trying again: %s", self._key.name, error)
            return False
        self.writes += 1
        return True
