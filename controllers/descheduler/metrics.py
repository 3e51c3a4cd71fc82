"""Pods that were moved, or kept by a limit, under the name that dashboards of deschedulers ask for."""

from collections import Counter
from collections.abc import Iterator
from threading import Lock

from prometheus_client.core import Metric as Family
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from controllers.runtime.metrics import Metrics
from controllers.runtime.writer import Answer, Result

FAMILY = "descheduler_pods_evicted"
LABELS = ("result", "strategy", "namespace", "node")
HELP = "Pods by result of their eviction, plugin that chose them, namespace and node"
LIMITS = {
    "node": "maximum number of pods per node reached",
    "namespace": "maximum number of pods per namespace reached",
}
"""Results of pods that stay, as existing dashboards spell them."""
MOST_SERIES = 2000
_OTHER = "[other]"
"""No namespace is called so."""
_NOT_SENT = frozenset({Result.DROPPED, Result.UNPLACED})

Limited = Counter[tuple[str, str, str, str]]
"""By plugin, node, namespace and limit."""


class DeschedulerMetrics(Metrics):
    """Metrics of the descheduler. Counters of moved pods have no suffix, as there."""

    def __init__(self, limited: Limited) -> None:
        super().__init__("koord_descheduler")
        self._moves = _Moves(limited)
        self.registry.register(self._moves)

    def answered(self, answer: Answer) -> None:
        """Count the writes of an answer, and the moves among them."""
        super().answered(answer)
        self._moves.note(answer)


class _Moves(PrometheusCollector):
    def __init__(self, limited: Limited) -> None:
        self._limited = limited
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._lock = Lock()

    def note(self, answer: Answer) -> None:
        for number, write in enumerate(answer.writes):
            if write.moves is None or (number >= answer.done and answer.result in _NOT_SENT):
                continue
            result = "success" if number < answer.done else "error"
            key = (result, write.moves.strategy, write.key.namespace, write.moves.node)
            with self._lock:
                # A job names its plugin itself: names that were made up must not grow without end.
                if key not in self._counts and len(self._counts) >= MOST_SERIES:
                    key = (result, _OTHER, _OTHER, _OTHER)
                self._counts[key] += 1

    def collect(self) -> Iterator[Family]:
        """The family, also without a value."""
        with self._lock:
            counts = dict(self._counts)
        for (plugin, node, namespace, limit), count in self._limited.copy().items():
            key = (LIMITS[limit], plugin, namespace, node)
            if key in counts or len(counts) < MOST_SERIES:
                counts[key] = counts.get(key, 0) + count
        family = UntypedMetricFamily(FAMILY, HELP, labels=LABELS)
        for labels, count in counts.items():
            family.add_metric(labels, float(count))
        yield family
