"""Prometheus metrics under the stock scheduler's names, so that its dashboards and alerts keep working."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from scheduler.engine import Engine
from scheduler.outcome import AttemptOutcome, Result

ATTEMPT_BUCKETS = tuple(0.001 * 2**step for step in range(15))
FAST_ATTEMPT_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, *ATTEMPT_BUCKETS)
REQUEST_BUCKETS = tuple(0.005 * 2**step for step in range(12))
MOST_BEGUN = 10_000
"""Attempts without an end of which the beginning is known."""
WAIT_BUCKETS = tuple(0.01 * 2**step for step in range(20))


class Metrics:
    """All metrics of one scheduler, in a registry of its own."""

    def __init__(self, profile: str) -> None:
        self.registry = CollectorRegistry()
        self._profile = profile
        self._attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result.",
            ("result", "profile"),
            registry=self.registry,
        )
        self._attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one attempt, without the binding.",
            ("result", "profile"),
            buckets=FAST_ATTEMPT_BUCKETS,
            registry=self.registry,
        )
        self._wait_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's arrival in the queue to its binding.",
            ("attempts",),
            buckets=WAIT_BUCKETS,
            registry=self.registry,
        )
        self._pod_attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts until a pod was bound.",
            buckets=(1, 2, 4, 8, 16),
            registry=self.registry,
        )
        self._pending = Gauge("scheduler_pending_pods", "Pending pods, by queue.", ("queue",), registry=self.registry)
        self._cache = Gauge(
            "scheduler_scheduler_cache_size",
            "Nodes, pods and assumed pods in the cache.",
            ("type",),
            registry=self.registry,
        )
        self._unschedulable = Gauge(
            "scheduler_unschedulable_pods",
            "Pods that are unschedulable or gated, by plugin.",
            ("plugin", "profile"),
            registry=self.registry,
        )
        self._preemptions = Counter(
            "scheduler_preemption_attempts", "Attempts that chose victims.", registry=self.registry
        )
        self._victims = Histogram(
            "scheduler_preemption_victims",
            "Victims per preemption.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self._faults = Counter(
            "koord_scheduler_faults",
            "Objects that could not be taken in and internal errors, by kind of object, plugin or step.",
            ("where",),
            registry=self.registry,
        )
        self._unwritten = Counter(
            "koord_scheduler_failed_writes", "Writes that failed, by verb.", ("verb",), registry=self.registry
        )
        self._algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time of one attempt, without the binding.",
            buckets=FAST_ATTEMPT_BUCKETS,
            registry=self.registry,
        )
        self._whole_seconds = Histogram(
            "scheduler_e2e_scheduling_duration_seconds",
            "Time of one attempt with the binding.",
            ("result", "profile"),
            buckets=FAST_ATTEMPT_BUCKETS,
            registry=self.registry,
        )
        self._pod_seconds = Histogram(
            "scheduler_pod_scheduling_duration_seconds",
            "Time from a pod's arrival in the queue to its binding, under the older name.",
            ("attempts",),
            buckets=WAIT_BUCKETS,
            registry=self.registry,
        )
        self._incoming = Counter(
            "scheduler_queue_incoming_pods",
            "Pods that came into a queue, by what brought them there.",
            ("queue", "event"),
            registry=self.registry,
        )
        self._incoming_before: dict[tuple[str, str], int] = {}
        self._requests = Counter(
            "rest_client_requests", "Requests to the API server.", ("method", "code"), registry=self.registry
        )
        self._request_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time of requests to the API server.",
            ("verb",),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self._begun: dict[str, float] = {}
        """Start of the last attempt by uid, in seconds of the performance counter."""
        self._waiting = Gauge("scheduler_permit_waiting_pods", "Pods that wait at Permit.", registry=self.registry)
        # Koordinator counts under this name, to which a Counter would append `_total`.
        self._slow = Gauge(
            "scheduler_scheduling_timeout",
            "Times that an attempt was seen to take longer than the time-out, by scheduler.",
            ("profile",),
            registry=self.registry,
        )

    def attempted(self, outcome: AttemptOutcome, seconds: float) -> None:
        """Observe the duration of one attempt."""
        result = Result.SCHEDULED if outcome.result is Result.WAITING else outcome.result
        self._attempt_seconds.labels(result.value, self._profile).observe(seconds)
        self._algorithm_seconds.observe(seconds)
        self._begun[outcome.info.uid] = time.perf_counter() - seconds
        if len(self._begun) > MOST_BEGUN:
            del self._begun[next(iter(self._begun))]

    def ended(self, outcome: AttemptOutcome, now: float) -> float:
        """Count an attempt that ended: bound, refused or failed. Return its seconds, 0 where they are not known."""
        if outcome.result is Result.WAITING:
            return 0.0
        self._attempts.labels(outcome.result.value, self._profile).inc()
        begun = self._begun.pop(outcome.info.uid, None)
        seconds = 0.0 if begun is None else time.perf_counter() - begun
        if begun is not None:
            self._whole_seconds.labels(outcome.result.value, self._profile).observe(seconds)
        if outcome.result is Result.SCHEDULED:
            label = str(outcome.attempts) if outcome.attempts < 16 else "16+"
            self._wait_seconds.labels(label).observe(max(0.0, now - outcome.first_seen))
            self._pod_seconds.labels(label).observe(max(0.0, now - outcome.first_seen))
            self._pod_attempts.observe(outcome.attempts)
        if outcome.victims:
            self._preemptions.inc()
            self._victims.observe(len(outcome.victims))
        return seconds

    def slow(self, scheduler_name: str) -> None:
        """Count an attempt that takes longer than the time-out; safe from any thread."""
        self._slow.labels(scheduler_name).inc()

    def faulted(self, where: str) -> None:
        """Count an object that could not be taken in, or an internal error."""
        self._faults.labels(where).inc()

    def unwritten(self, verb: str) -> None:
        """Count a write that failed."""
        self._unwritten.labels(verb).inc()

    def requested(self, method: str, status: int, seconds: float) -> None:
        """Count a request to the API server; safe from any thread."""
        self._requests.labels(method, str(status)).inc()
        self._request_seconds.labels(method).observe(seconds)

    def counted(self, engine: Engine) -> None:
        """Set the gauges; called about once a second, in the engine's thread."""
        for state, count in engine.queue.counts().items():
            self._pending.labels(state).set(count)
        for key, total in engine.queue.incoming.items():
            before = self._incoming_before.get(key, 0)
            self._incoming.labels(*key).inc(total - before if total >= before else total)
            self._incoming_before[key] = total
        snapshot = engine.snapshot
        assumed = sum(1 for placement in snapshot.pods.values() if placement.assumed)
        self._cache.labels("nodes").set(snapshot.node_count)
        self._cache.labels("pods").set(len(snapshot.pods))
        self._cache.labels("assumed_pods").set(assumed)
        self._waiting.set(len(engine.waiting()))
        self._unschedulable.clear()
        for plugin, count in engine.queue.parked_by_plugin().items():
            self._unschedulable.labels(plugin, self._profile).set(count)
