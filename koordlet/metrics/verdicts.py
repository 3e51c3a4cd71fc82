"""Verdicts, baselines and the judge as Prometheus series, with a hard bound on series."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.verdicts import Verdict, VerdictState
from koordlet.agent.detection import DetectionState
from koordlet.metrics.labels import CULPRIT, NO_POD, VICTIM, Labels, distinct, identity_of_ref, short, without_empty

OTHER = "other"

_OPEN_LABELS = (*VICTIM, "name", "resource", "cause", *CULPRIT)

FAMILIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "koord_verdicts": ("counter", ("resource", "cause", "severity"), "Verdicts opened, by severity when they opened"),
    "koord_verdicts_open": ("gauge", ("resource", "cause", "severity"), "Open verdicts"),
    "koord_verdict_lost_seconds_per_second": (
        "gauge",
        _OPEN_LABELS,
        "Seconds lost per second under an open verdict, with its first culprit",
    ),
    "koord_verdict_entitled_seconds_per_second": (
        "gauge",
        _OPEN_LABELS,
        "Part of that loss below the victim's own share of the resource; the rest it would lose to fair division, too",
    ),
    "koord_verdict_confidence_ratio": (
        "gauge",
        _OPEN_LABELS,
        "Part of the loss that was measured to be a named culprit's",
    ),
    "koord_judge_run_seconds": ("counter", (), "Time spent judging"),
    "koord_judge_last_run_seconds": ("gauge", (), "Time spent judging the last tick"),
    "koord_judge_failures": ("counter", (), "Ticks that could not be judged"),
    "koord_baseline_cells": ("gauge", ("state",), "Baselines by workload, signal and load: ready or warming up"),
    "koord_baseline_refused_samples": ("counter", (), "Samples for which baselines had no room"),
    "koord_baseline_saves": ("counter", (), "Times that baselines were saved"),
    "koord_baseline_save_failures": ("counter", (), "Times that baselines could not be saved"),
    "koord_baseline_files_refused": ("counter", (), "Baseline files refused at start and set aside"),
}
"""Kind, labels and meaning of every family; counters get `_total`."""


class VerdictMetrics(PrometheusCollector):
    """Series of the judge: `update` takes the verdicts of each tick; `collect` may run in another thread."""

    def __init__(
        self,
        max_victims: int,
        name_of: Callable[[str], str],
        entitled_part: Callable[[Verdict], float | None] = lambda _verdict: None,
    ) -> None:
        """`entitled_part` gives the part of a loss below the victim's own share, from the tick's state: in a tick."""
        self._max_victims = max_victims
        self._name_of = name_of
        self._entitled_part = entitled_part
        self._lock = Lock()
        self._opened: Counter[tuple[str, ...]] = Counter()
        self._open_verdicts: tuple[Verdict, ...] = ()
        self._names: dict[str, str] = {}
        self._entitled: dict[tuple[str, ...], float] = {}
        self._state = DetectionState()
        self._last_run_seconds = 0.0

    def update(self, verdicts: Sequence[Verdict], open_verdicts: Iterable[Verdict], state: DetectionState) -> None:
        """Take the verdicts that opened, changed or closed in a tick, and those in effect after it."""
        with self._lock:
            self._opened.update(_kind(verdict) for verdict in verdicts if verdict.state is VerdictState.OPEN)
            self._open_verdicts = tuple(open_verdicts)
            self._names = {verdict.victim: self._name_of(verdict.victim) for verdict in self._open_verdicts}
            shown, _rest = self._victim_series()
            parts = {key: self._entitled_part(verdict) for key, verdict in shown.items()}
            self._entitled = {key: part for key, part in parts.items() if part is not None}
            self._last_run_seconds = state.run_seconds - self._state.run_seconds
            self._state = state

    def collect(self) -> Iterator[Family]:
        """All families."""
        with self._lock:
            shown, rest = self._victim_series()
            values = self._values(shown, rest)
        for name, (kind, labels, text) in FAMILIES.items():
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(name, text, labels=labels)
            for key, value in values[name].items():
                family.add_metric(key, value)
            yield without_empty(family)

    def _values(
        self, shown: Mapping[tuple[str, ...], Verdict], rest: Mapping[tuple[str, ...], float]
    ) -> dict[str, dict[tuple[str, ...], float]]:
        lost = {key: verdict.lost_seconds_per_second for key, verdict in shown.items()}
        state = self._state
        single = {
            "koord_judge_run_seconds": state.run_seconds,
            "koord_judge_last_run_seconds": self._last_run_seconds,
            "koord_judge_failures": state.failures,
            "koord_baseline_refused_samples": state.refused_samples,
            "koord_baseline_saves": state.saves,
            "koord_baseline_save_failures": state.save_failures,
            "koord_baseline_files_refused": state.files_refused,
        }
        return {
            "koord_verdicts": {key: float(count) for key, count in self._opened.items()},
            "koord_verdicts_open": dict(Counter(map(_kind, self._open_verdicts))),
            "koord_verdict_lost_seconds_per_second": {**lost, **rest},
            "koord_verdict_entitled_seconds_per_second": dict(self._entitled),
            "koord_verdict_confidence_ratio": {key: verdict.confidence for key, verdict in shown.items()},
            "koord_baseline_cells": {("ready",): state.ready_cells, ("warming_up",): state.warming_cells},
            **{name: {(): float(value)} for name, value in single.items()},
        }

    def _victim_series(self) -> tuple[dict[tuple[str, ...], Verdict], dict[tuple[str, ...], float]]:
        """The worst verdicts, one for a victim and cause; the losses of the rest are summed as `other`."""
        worst: dict[tuple[str, str, str], Verdict] = {}
        for verdict in sorted(self._open_verdicts, key=lambda each: -each.lost_seconds_per_second):
            worst.setdefault((verdict.victim, verdict.resource, verdict.cause), verdict)
        shown: dict[tuple[str, ...], Verdict] = {}
        summed: dict[tuple[str, ...], float] = {}
        owners: dict[tuple[str, str], set[Labels]] = {}
        for place, verdict in enumerate(worst.values()):
            taken = owners.setdefault((verdict.resource, verdict.cause), set())
            if place < self._max_victims:
                key = self._labels(verdict)
                key = (*distinct(key[:4], verdict.victim, taken), *key[4:])
                taken.add(key[:4])
                shown[key] = verdict
            else:
                rest = (*NO_POD, OTHER, OTHER, verdict.resource, verdict.cause, *NO_POD, OTHER)
                summed[rest] = summed.get(rest, 0.0) + verdict.lost_seconds_per_second
        return shown, summed

    def _labels(self, verdict: Verdict) -> tuple[str, ...]:
        victim = identity_of_ref(verdict.victim_ref, verdict.victim)
        first = verdict.culprits[0] if verdict.culprits else None
        culprit = identity_of_ref(first.ref, first.path) if first else (*NO_POD, "")
        return *victim, short(self._names[verdict.victim]), verdict.resource, verdict.cause, *culprit


def _kind(verdict: Verdict) -> tuple[str, ...]:
    return verdict.resource, verdict.cause, verdict.severity.value
