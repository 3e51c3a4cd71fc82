"""Reporter of one agent to the cluster: watches this node's pods, sends Events, keeps the node's annotation current."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from api.kube.interference import ANNOTATION_VERDICTS
from api.kube.objects import Pod
from api.verdicts import Verdict
from cluster import (
    PODS,
    Backoff,
    Client,
    ClientSettings,
    EventRecorder,
    Informer,
    Query,
    RecorderSettings,
    StoreDelta,
    load_endpoint,
)
from koordlet.kube.annotation import AnnotationSchedule, entries_of
from koordlet.kube.events import VerdictEvents
from koordlet.kube.node_writer import NodeAnnotationWriter
from koordlet.kube.pods import PodIndex
from koordlet.kube.settings import ClusterSettings

PACE = ClientSettings(
    requests_per_second=5.0,
    burst=20,
    timeout_seconds=10.0,
    connect_seconds=3.0,
    attempts=2,
    patience_seconds=10.0,
    user_agent="koordlet",
)
"""Rate of requests of one agent; thousands share one API server."""
RETRY = Backoff(initial_seconds=1.0, maximum_seconds=60.0)


def node_name(settings: ClusterSettings) -> str:
    """Return the name of this node's object."""
    return settings.node_name or os.environ.get("NODE_NAME") or socket.gethostname().lower()


def connect(settings: ClusterSettings) -> Client:
    """Return a client at the agent's rate. Raises `cluster.NotConfigured`."""
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    return Client(load_endpoint(kubeconfig=kubeconfig, pool_size=4), PACE)


class Reporter:
    """Reporter of verdicts; `update` after each tick passes values and never waits. The client stays the caller's."""

    def __init__(self, client: Client, settings: ClusterSettings, node: str, *, retry: Backoff = RETRY) -> None:
        self.pods = PodIndex()
        self._settings = settings
        self._words = VerdictEvents(self.pods)
        self._pace = AnnotationSchedule(settings.annotation_seconds)
        self.informer = Informer(client, PODS.of(Pod), Query(fields=f"spec.nodeName={node}"))
        self.informer.subscribe(self._on_pods)
        self.recorder = EventRecorder(client, RecorderSettings("koordlet", node))
        self.annotation = NodeAnnotationWriter(client, node, ANNOTATION_VERDICTS, backoff=retry)

    def start(self) -> None:
        """Start to watch and to write."""
        self.informer.start()
        self.recorder.start()
        self.annotation.start()

    def update(self, changes: Sequence[Verdict], open_verdicts: Sequence[Verdict], now_seconds: float) -> None:
        """Report a tick's changes and the verdicts open after it, at a wall-clock time."""
        if self._settings.events:
            for event in filter(None, map(self._words.event, changes)):
                self.recorder.record(event)
        if self._settings.annotation:
            entries = entries_of(open_verdicts, self.pods)
            if self._pace.due(entries, now_seconds):
                self.annotation.request(self._pace.write(entries, now_seconds))

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Remove the annotation, which would no longer be kept current, and stop; idempotent."""
        if self._settings.annotation:
            self.annotation.request(None)
        self.annotation.stop(timeout_seconds)
        self.recorder.stop(timeout_seconds)
        self.informer.stop(timeout_seconds)

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the start."""
        events = self.recorder.counters
        return {
            "events_sent": events.created + events.continued,
            "events_held_back": events.held_back + self._words.held_back,
            "events_lost": events.dropped + events.failed + self._words.unknown,
            "annotation_writes": self.annotation.writes,
            "annotation_failures": self.annotation.failures,
            "pods": len(self.pods),
        }

    def _on_pods(self, deltas: Sequence[StoreDelta[Pod]]) -> None:
        for delta in deltas:
            self.pods.change(delta.old, delta.new)
