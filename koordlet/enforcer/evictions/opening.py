"""The way to the API server for an agent that may evict. Imported in a cluster only."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.events import EventRecorder, RecorderSettings
from koordlet.enforcer.evictions.api_evictor import ApiPodEvictor
from koordlet.kube.reporter import connect
from koordlet.kube.settings import ClusterSettings


@contextmanager
def open_pod_evictor(settings: ClusterSettings, node: str) -> Iterator[ApiPodEvictor]:
    """An evictor with a connection and a recorder of its own. Raises NotConfigured without an API server."""
    with connect(settings) as client:
        recorder = EventRecorder(client, RecorderSettings("koordlet", node))
        recorder.start()
        try:
            yield ApiPodEvictor(client, recorder.record)
        finally:
            recorder.stop()
