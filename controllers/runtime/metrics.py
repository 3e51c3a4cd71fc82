"""Prometheus metrics of a program of controllers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controllers.runtime.writer import Answer

PLAN_BUCKETS = tuple(0.001 * 2**step for step in range(14))


class Metrics:
    """All metrics of one program, in a registry of its own."""

    def __init__(self, prefix: str = "koord_manager") -> None:
        self.registry = CollectorRegistry()
        self._plans = Histogram(
            f"{prefix}_plan_duration_seconds",
            "Time of one plan of a controller.",
            ("controller",),
            buckets=PLAN_BUCKETS,
            registry=self.registry,
        )
        self._plan_failures = Counter(
            f"{prefix}_plan_failures", "Plans that ended in an error.", ("controller",), registry=self.registry
        )
        self._writes = Counter(
            f"{prefix}_writes",
            "Writes by controller, kind and result.",
            ("controller", "kind", "result"),
            registry=self.registry,
        )
        self._waiting = Gauge(
            f"{prefix}_objects_due",
            "Objects held back from a plan's writes.",
            ("controller",),
            registry=self.registry,
        )
        self._objects = Gauge(
            f"{prefix}_objects", "Objects in the copy of the cluster, by kind.", ("kind",), registry=self.registry
        )
        self._leading = Gauge(f"{prefix}_leading", "1 while this process leads.", registry=self.registry)
        self._requests = Counter(
            f"{prefix}_requests", "Requests to the API server.", ("method", "code"), registry=self.registry
        )
        self._warnings = Counter(
            f"{prefix}_warnings",
            "Warnings by controller and reason.",
            ("controller", "reason"),
            registry=self.registry,
        )
        self._silence = Gauge(
            f"{prefix}_api_server_silent_seconds",
            "Time since any watch heard the API server.",
            registry=self.registry,
        )

    def planned(self, controller: str, seconds: float) -> None:
        """Count a plan."""
        self._plans.labels(controller).observe(seconds)

    def plan_failed(self, controller: str) -> None:
        """Count a plan that raised."""
        self._plan_failures.labels(controller).inc()

    def held_back(self, controller: str, count: int) -> None:
        """State how many objects wait after a round."""
        self._waiting.labels(controller).set(count)

    def answered(self, answer: Answer) -> None:
        """Count the writes of an answer."""
        if answer.done:
            self._writes.labels(answer.controller, answer.target.kind, "done").inc(answer.done)
        if answer.done < len(answer.writes):
            rest = len(answer.writes) - answer.done
            self._writes.labels(answer.controller, answer.target.kind, answer.result.value).inc(rest)

    def requested(self, method: str, status: int, _seconds: float) -> None:
        """Count a request; safe from any thread."""
        self._requests.labels(method, str(status)).inc()

    def warned(self, controller: str, reason: str) -> None:
        """Count a warning."""
        self._warnings.labels(controller, reason).inc()

    def state(self, objects: dict[str, int], *, leading: bool, silent_seconds: float) -> None:
        """State the size of the copy, leadership and silence."""
        for kind, count in objects.items():
            self._objects.labels(kind).set(count)
        self._leading.set(leading)
        self._silence.set(silent_seconds)
