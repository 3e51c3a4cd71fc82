"""Reporter of one agent to the cluster: Events, the node's NodeMetric, and this node's objects as they change."""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from api.kube.device_use import DeviceUse
from api.kube.interference import WantedTaint, WireUsualValues
from api.pod_actions import PodAction
from cluster import (
    Backoff,
    Client,
    ClientSettings,
    EventRecorder,
    InformerSettings,
    RecorderSettings,
    load_endpoint,
)
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import PodTable, PodTableOf, no_pods
from koordlet.kube.events import VerdictEvents
from koordlet.kube.lost_time import LostTime
from koordlet.kube.metric_writer import NodeMetricWriter
from koordlet.kube.node_metric import Stated, UsageHistory, status_of
from koordlet.kube.node_object import NodeObject, NodeOf
from koordlet.kube.peaks import PeakPrediction
from koordlet.kube.report_policy import ReportSchedule, policy_of
from koordlet.kube.settings import ClusterSettings
from koordlet.kube.usage_meter import THROTTLED, WAITED, UsageMeter
from koordlet.kube.verdict_entries import entries_of, stated_keys
from koordlet.prediction.settings import PredictionSettings
from koordlet.tick import Tick

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
RETRY = Backoff(initial_seconds=1.0, maximum_seconds=60.0, jitter=1.0)
"""Times of tries while the server is away: drawn from the whole delay, so that agents return apart."""
WATCH = InformerSettings(backoff=RETRY)


def node_name(settings: ClusterSettings) -> str:
    """Return the name of this node's object."""
    return settings.node_name or os.environ.get("NODE_NAME") or socket.gethostname().lower()


def connect(settings: ClusterSettings) -> Client:
    """Return a client at the agent's rate. Raises `cluster.NotConfigured`."""
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    return Client(load_endpoint(kubeconfig=kubeconfig, pool_size=4), PACE)


class Reporter:
    """Reports of one agent; `update` after each tick passes values and never waits. The client stays the caller's."""

    def __init__(
        self,
        client: Client,
        settings: ClusterSettings,
        node: str,
        *,
        interval_seconds: float = 1.0,
        turn_seconds: float = 10.0,
        prediction: PredictionSettings | None = None,
        pods: PodTableOf = no_pods,
        node_of: NodeOf | None = None,
        retry: Backoff = RETRY,
        random: Random | None = None,
    ) -> None:
        """`pods` tells of this node's pods, `node_of` of its object; without that it is watched here.

        `interval_seconds` is the time between two ticks, `turn_seconds` that in which each costly file is read once.
        Without `prediction`, or with one that is off, no peaks are learned.
        """
        self._settings = settings
        self._random = random or Random()
        self._pods = pods
        self.node = NodeObject(client, node, WATCH, node_of)
        self.recorder = EventRecorder(client, RecorderSettings("koordlet", node))
        self.words = VerdictEvents(self._pods)
        self.metric = NodeMetricWriter(
            client, node, backoff=retry, create=settings.create_node_metric, random=self._random
        )
        self.history = UsageHistory(interval_seconds)
        self.applications: Mapping[str, HostApplicationGroup] = {}
        """Host applications by the path of their cgroup; replaced in one step."""
        self.devices_of: Callable[[], DeviceUse] = dict
        """Newest use of devices, the same object until it is read again; never waits."""
        self.usual_values: Callable[[], Sequence[WireUsualValues]] = list
        """Usual values to state with the next report; never waits."""
        self._meter = UsageMeter(turn_seconds)
        self._throttled, self._waited = LostTime(), LostTime()
        self._schedule = ReportSchedule(self._random, settings.first_report_seconds)
        self._peaks: PeakPrediction | None = None
        if settings.node_metric and prediction is not None and prediction.enabled:
            self._peaks = PeakPrediction(prediction, time.time())
        self._last: Stated | None = None
        self._clocks = (0.0, 0.0)

    @property
    def table(self) -> PodTable:
        """The newest table of pods."""
        return self._pods()

    def start(self) -> None:
        """Start to watch and to write."""
        if self._peaks is not None:
            self.node.start()
        self.recorder.start()
        if self._settings.node_metric:
            self.metric.start()

    def update(self, tick: Tick, taints: Sequence[WantedTaint] = (), actions: Sequence[PodAction] = ()) -> None:
        """Report a tick's verdicts and usage, the taints that strategies want after it, and actions since the last."""
        if self._settings.events:
            for verdict in tick.verdicts:
                for event in self.words.events(verdict):
                    self.recorder.record(event)
            for event in self.words.limits(actions):
                self.recorder.record(event)
        if self._settings.node_metric:
            self._report(tick, taints)

    def _report(self, tick: Tick, taints: Sequence[WantedTaint]) -> None:
        now_seconds, wall_seconds = tick.window.last.monotonic_ns / 1e9, tick.window.last.wall_ns / 1e9
        pods, applications = self._pods(), self.applications
        policy = policy_of(self.metric.spec)
        self.history.follow(policy)
        names = {path: each.name for path, each in applications.items()}
        self.history.add(self._meter.measure(tick, names), now_seconds)
        for lost, columns in ((self._throttled, THROTTLED), (self._waited, WAITED)):
            lost.add(self._meter.lost_seconds(tick, columns), tick.delta.seconds)
        self.history.devices.add(self.devices_of(), now_seconds)
        if self._peaks is not None:
            self._peaks.step(self.history, pods, now_seconds, wall_seconds)
        entries = entries_of(tick.open_verdicts, pods)
        urgent = stated_keys(entries) | {("taint", taint.key, taint.value) for taint in taints}
        if not self._schedule.due(urgent, now_seconds):
            return
        prediction = None
        if self._peaks is not None:
            prediction = self._peaks.predict(pods, self.node.allocatable(), wall_seconds)
        self._last = Stated(
            pods=pods,
            applications={each.name: each for each in applications.values()},
            prediction=prediction,
            verdicts=entries,
            taints=tuple(taints),
            usual_values=self.usual_values(),
            throttled=self._throttled.take(),
            waited=self._waited.take(),
        )
        self._clocks = (now_seconds, wall_seconds)
        self.metric.request(
            status_of(self.history, policy, self._last, now_seconds=now_seconds, wall_seconds=wall_seconds)
        )
        self._schedule.reported(urgent, policy.report_seconds, now_seconds)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Report once more, without the verdicts, which are no longer kept current, and stop; idempotent."""
        if self._last is not None and self._last.verdicts:
            now_seconds, wall_seconds = self._clocks
            last = Stated(
                pods=self._last.pods,
                applications=self._last.applications,
                prediction=self._last.prediction,
                taints=self._last.taints,
            )
            policy = policy_of(self.metric.spec)
            self.metric.request(
                status_of(self.history, policy, last, now_seconds=now_seconds, wall_seconds=wall_seconds)
            )
            self._last = last
        self.metric.stop(timeout_seconds)
        self.recorder.stop(timeout_seconds)
        self.node.stop(timeout_seconds)

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the start."""
        events = self.recorder.counters
        return {
            "events_sent": events.created + events.continued,
            "events_held_back": events.held_back + self.words.held_back,
            "events_lost": events.dropped + events.failed + self.words.unknown,
            "reports": self.metric.writes,
            "report_failures": self.metric.failures,
            "checkpoint_failures": self._peaks.failures if self._peaks else 0,
            "pods": len(self._pods()),
        }
