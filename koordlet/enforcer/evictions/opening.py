"""The way to the API server for an agent that may evict. Imported in a cluster only."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster import Client
from cluster.events import EventRecorder, RecorderSettings
from koordlet.enforcer.evictions.api_evictor import ApiPodEvictor


@contextmanager
def open_pod_evictor(client: Client, node: str) -> Iterator[ApiPodEvictor]:
    """An evictor with a recorder of its own; closes the client."""
    with client:
        recorder = EventRecorder(client, RecorderSettings("koordlet", node))
        recorder.start()
        try:
            yield ApiPodEvictor(client, recorder.record)
        finally:
            recorder.stop()
