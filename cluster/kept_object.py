"""One object that a program keeps as it wants it: read once, written on change, read again now and then."""

from collections.abc import Callable
from typing import Any

from cluster import errors
from cluster.client import Client
from cluster.resources import Document, Key, Resource

Change = Callable[[Document | None], Document | None]
"""From the stored object, None where there is none, to the one to write, or None to leave it as it is."""

CHECK_SECONDS = 300.0
"""Time after which the stored object is read again: others may have changed or deleted it."""
ATTEMPTS = 4
"""Tries when others write in between."""


class KeptObject:
    """An object of one name; for one thread at a time. What others wrote into it is the change's to keep."""

    def __init__(
        self, client: Client, resource: Resource[Any], key: Key, *, check_seconds: float = CHECK_SECONDS
    ) -> None:
        self.writes = 0
        self._client = client
        self._documents: Resource[Document] = resource.of(dict, complete=True)
        self._key = key
        self._check_seconds = check_seconds
        self._stored: Document | None = None
        self._read_seconds: float | None = None

    def sync(self, change: Change, now_seconds: float) -> bool:
        """Write the object if it is to be changed; returns whether it was. Raises ClusterError: sync again later."""
        for attempt in range(ATTEMPTS):
            if self._read_seconds is None or now_seconds - self._read_seconds >= self._check_seconds:
                self._stored = self._client.find(self._documents, self._key)
                self._read_seconds = now_seconds
            wanted = change(self._stored)
            if wanted is None:
                return False
            # What was read before a failed write may be no longer so.
            stored, self._read_seconds = self._stored, None
            try:
                self._stored = self._write(stored, wanted)
            except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            self._read_seconds = now_seconds
            self.writes += 1
            return True
        return False

    def _write(self, stored: Document | None, wanted: Document) -> Document:
        if stored is None:
            return self._client.create(self._documents, wanted)
        return self._client.update(self._documents, wanted)
