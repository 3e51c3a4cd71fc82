"""Actions, harm and strategies as Prometheus series with a hard bound."""

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.frame import CgroupInfo
from api.qos import QoSClass
from koordlet.control.control_loop import ControlLoop
from koordlet.control.harm import Harm
from koordlet.control.slowdown import Slowdown
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.metrics.labels import CGROUP_LABELS, Labels, distinct, identity_of, short, without_empty

_HARM_LABELS = CGROUP_LABELS

FAMILIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "koord_actions": (
        "counter",
        ("strategy", "knob", "outcome", "dry_run"),
        "Decisions of the enforcer by outcome",
    ),
    "koord_settings_active": ("gauge", ("strategy", "knob"), "Settings in effect"),
    "koord_protocol_settings": (
        "gauge",
        ("strategy", "knob"),
        "Protocol state that is held, in effect or below an action",
    ),
    "koord_guardian_starts": ("counter", (), "Times that the process that restores actions was started"),
    "koord_hook_calls": ("counter", ("mode", "method"), "Calls of the container runtime that the hooks answered"),
    "koord_hook_failures": ("counter", ("mode", "method"), "Calls that were answered with nothing because of an error"),
    "koord_hook_slowest_seconds": ("gauge", ("mode",), "Longest time for an answer to the container runtime"),
    "koord_hook_connected": ("gauge", ("mode",), "1 while the container runtime asks the hooks"),
    "koord_hook_problems": ("gauge", (), "Rules of the hooks that could not be followed for a pod or container"),
    "koord_response_steps": (
        "counter",
        ("resource", "rung", "step"),
        "Steps of the response: a rung applied, lifted, kept, reverted, refused or released",
    ),
    "koord_response_rungs_active": ("gauge", ("resource", "rung"), "Rungs in effect"),
    "koord_culprits_skipped": ("counter", ("reason",), "Culprits that were not acted upon, by reason"),
    "koord_tripwire_trips": (
        "counter",
        ("outcome",),
        "Trips of the kernel tripwire: a cgroup lost more than its budget",
    ),
    "koord_harm_ratio": (
        "gauge",
        _HARM_LABELS,
        "Seconds lost to others per second of progress, of latency-sensitive cgroups",
    ),
    "koord_harm_low_ratio": ("gauge", _HARM_LABELS, "Lower end of its 95 % confidence interval"),
    "koord_harm_high_ratio": ("gauge", _HARM_LABELS, "Upper end of its 95 % confidence interval"),
    "koord_turnaround_slowdown_ratio": (
        "gauge",
        _HARM_LABELS,
        "Mean turnaround over what is usual at the same load, less one, of latency-sensitive cgroups",
    ),
    "koord_turnaround_slowdown_low_ratio": ("gauge", _HARM_LABELS, "Lower end of its 95 % confidence interval"),
    "koord_turnaround_slowdown_high_ratio": ("gauge", _HARM_LABELS, "Upper end of its 95 % confidence interval"),
    "koord_strategy_run_seconds": ("counter", ("strategy",), "Time spent deciding"),
    "koord_strategy_runs": ("counter", ("strategy",), "Decisions asked for"),
    "koord_strategy_failures": ("counter", ("strategy",), "Decisions that failed"),
    "koord_strategy_problems": (
        "gauge",
        ("strategy",),
        "Settings that the strategy could not follow in its last decision",
    ),
    "koord_strategy_intents": ("gauge", ("strategy", "result"), "Intents of the last tick by result"),
}
"""Kind, labels and meaning of every family; counters get `_total`."""

Values = dict[str, dict[tuple[str, ...], float]]

_HARM_EVERY = 5
"""Ticks between two readings of harm, whose batches are of five seconds (`koordlet/control/harm.py`)."""


class ActionMetrics(PrometheusCollector):
    """Series of the control loop: `update` takes its state after each tick; `collect` may run in another thread."""

    def __init__(self, max_cgroups: int, name_of: Callable[[str], str], *, dry_run: bool) -> None:
        self._max_cgroups = max_cgroups
        self._name_of = name_of
        self._dry_run = "true" if dry_run else "false"
        self._lock = Lock()
        self._values: Values = {name: {} for name in FAMILIES}
        self._worst: Values = {}
        self._updates = 0

    def update(self, control: ControlLoop, cgroups: tuple[CgroupInfo, ...]) -> None:
        """Take the present state; harm is that of the worst `max_cgroups` latency-sensitive cgroups."""
        if self._updates % _HARM_EVERY == 0:
            self._worst = self._harm(control, cgroups)
        self._updates += 1
        values = _action_series(control, self._dry_run) | _strategy_series(control) | self._worst
        with self._lock:
            self._values = values

    def collect(self) -> Iterator[Family]:
        """All families."""
        with self._lock:
            values = self._values
        for name, (kind, labels, text) in FAMILIES.items():
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(name, text, labels=labels)
            for key, value in values[name].items():
                family.add_metric(key, value)
            yield without_empty(family)

    def _harm(self, control: ControlLoop, cgroups: tuple[CgroupInfo, ...]) -> Values:
        watched = [info for info in cgroups if QoSClass(info.qos).latency_sensitive]
        ids = np.array([info.id for info in watched], dtype=np.uint64)
        figures: dict[str, Harm | Slowdown] = {
            "koord_harm": control.harm.harm(ids),
            "koord_turnaround_slowdown": control.slowdown.slowdown(ids),
        }
        values: Values = {}
        for family, figure in figures.items():
            order = np.argsort(-np.nan_to_num(figure.ratio), kind="stable")
            worst = [int(row) for row in order if np.isfinite(figure.ratio[row])][: self._max_cgroups]
            labels: list[Labels] = []
            taken: set[Labels] = set()
            for row in worst:
                info = watched[row]
                identity = distinct(identity_of(info), info.path, taken)
                taken.add(identity)
                labels.append((*identity, short(self._name_of(info.path)), info.qos))
            for part, column in (("", figure.ratio), ("_low", figure.low), ("_high", figure.high)):
                values[f"{family}{part}_ratio"] = dict(zip(labels, column[worst].tolist(), strict=True))
        return values


def _action_series(control: ControlLoop, dry_run: str) -> Values:
    enforcer, response, hooks = control.enforcer, control.response, control.hook_figures()
    active: dict[tuple[str, ...], float] = {}
    for setting in enforcer.active_settings().values():
        key = (setting.strategy, str(setting.knob))
        active[key] = active.get(key, 0.0) + 1
    held: dict[tuple[str, ...], float] = {}
    for setting in enforcer.held_protocol_state().values():
        key = (setting.strategy, str(setting.knob))
        held[key] = held.get(key, 0.0) + 1
    rungs: dict[tuple[str, ...], float] = {}
    for (_culprit, resource), names in response.active_rungs.items():
        for name in names:
            rungs[resource, name] = rungs.get((resource, name), 0.0) + 1
    return {
        "koord_actions": {(*key, dry_run): float(count) for key, count in enforcer.counts.items()},
        "koord_settings_active": active,
        "koord_protocol_settings": held,
        "koord_guardian_starts": {(): float(control.guardian.starts)} if control.guardian else {},
        "koord_hook_calls": {key: float(count) for key, count in hooks.calls.items()},
        "koord_hook_failures": {key: float(count) for key, count in hooks.failures.items()},
        "koord_hook_slowest_seconds": {(mode,): seconds for mode, seconds in hooks.slowest_seconds.items()},
        "koord_hook_connected": {(mode,): float(is_there) for mode, is_there in hooks.connected.items()},
        "koord_hook_problems": {(): float(hooks.problems)} if hooks.calls or hooks.problems else {},
        "koord_response_steps": {key: float(count) for key, count in control.steps.items()},
        "koord_response_rungs_active": rungs,
        "koord_culprits_skipped": {(why,): float(count) for why, count in response.skipped.items()},
        "koord_tripwire_trips": {(what,): float(count) for what, count in control.trips.items()},
    }


def _strategy_series(control: ControlLoop) -> Values:
    """Series of the strategies; the intents include those of the response."""
    runner = control.strategies or StrategyRunner({})
    return {
        "koord_strategy_run_seconds": {(name,): seconds for name, seconds in runner.run_seconds.items()},
        "koord_strategy_runs": {(name,): float(runner.runs) for name in runner.strategies},
        "koord_strategy_failures": {(name,): float(runner.failures[name]) for name in runner.strategies},
        "koord_strategy_problems": {(name,): float(count) for name, count in runner.problems.items()},
        "koord_strategy_intents": {
            (strategy, result.value): float(count) for (strategy, result), count in control.intent_counts.items()
        },
    }
