"""The agent's hand in the cluster: watches this node's pods, sends Events, keeps the node's annotation true."""

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
from koordlet.kube.annotation import AnnotationPace, entries_of
from koordlet.kube.events import EventWords
from koordlet.kube.node_writer import NodeAnnotation
from koordlet.kube.pods import PodBook
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
"""Thousands of agents share one API server."""
RETRY = Backoff(initial_seconds=1.0, maximum_seconds=60.0)


def node_name(settings: ClusterSettings) -> str:
    """Name of this node's object."""
    return settings.node_name or os.environ.get("NODE_NAME") or socket.gethostname().lower()


def connect(settings: ClusterSettings) -> Client:
    """A client at the agent's pace. Raises `cluster.NotConfigured`."""
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    return Client(load_endpoint(kubeconfig=kubeconfig, pool_size=4), PACE)


class Reporter:
    """`update` after each tick; it hands over values and never waits. The client stays the caller's."""

    def __init__(self, client: Client, settings: ClusterSettings, node: str, *, retry: Backoff = RETRY) -> None:
        self.pods = PodBook()
        self._settings = settings
        self._words = EventWords(self.pods)
        self._pace = AnnotationPace(settings.annotation_seconds)
        self.informer = Informer(client, PODS.of(Pod), Query(fields=f"spec.nodeName={node}"))
        self.informer.subscribe(self._on_pods)
        self.recorder = EventRecorder(client, RecorderSettings("koordlet", node))
        self.annotation = NodeAnnotation(client, node, ANNOTATION_VERDICTS, backoff=retry)

    def start(self) -> None:
        """Begin to watch and to write."""
        self.informer.start()
        self.recorder.start()
        self.annotation.start()

    def update(self, changes: Sequence[Verdict], standing: Sequence[Verdict], now_seconds: float) -> None:
        """What a tick changed and what stands after it, at a wall-clock time."""
        if self._settings.events:
            for event in filter(None, map(self._words.event, changes)):
                self.recorder.record(event)
        if self._settings.annotation:
            entries = entries_of(standing, self.pods)
            if self._pace.due(entries, now_seconds):
                self.annotation.wish(self._pace.write(entries, now_seconds))

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Take the annotation back, as nobody watches any more, and end; idempotent."""
        if self._settings.annotation:
            self.annotation.wish(None)
        self.annotation.stop(timeout_seconds)
        self.recorder.stop(timeout_seconds)
        self.informer.stop(timeout_seconds)

    def counters(self) -> Mapping[str, int]:
        """What became of it all, ever."""
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
