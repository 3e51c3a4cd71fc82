"""When a NodeMetric is written and what it covers: intervals from its spec, jitter, and soon after verdicts. Pure."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random

from api.crds.node_metric import NodeMetricSpec
from api.kube.times import duration_seconds
from koordlet.kube.usage_series import Quantity

MIN_REPORT_SECONDS = 30.0
MIN_AGGREGATE_SECONDS = 60.0
MAX_SPAN_SECONDS = 3600.0
"""Longest window that a report covers; the usage of longer ones is not kept."""
MAX_DURATIONS = 8
URGENT_SECONDS = 5.0
"""Least time between two reports when verdicts or taints come and go."""
JITTER = 0.1
"""Part of an interval by which reports come sooner, drawn anew each time."""


@dataclass(frozen=True, slots=True)
class ReportPolicy:
    """Content and interval of reports."""

    report_seconds: float = 60.0
    aggregate_seconds: float = 300.0
    """Window of the averages."""
    durations: tuple[float, ...] = (300.0, 600.0, 1800.0)
    """Windows of the percentiles in seconds."""
    memory: Quantity = Quantity.MEMORY


def policy_of(spec: NodeMetricSpec) -> ReportPolicy:
    """Return what the spec of a NodeMetric asks for, within bounds; unreadable windows are left out.

    Page cache in use cannot be told from cold cache here, so "usageWithHotPageCache" counts none.
    """
    default, asked = ReportPolicy(), spec.metric_collect_policy
    if asked is None:
        return default
    durations = default.durations
    if asked.node_aggregate_policy is not None:
        read = (duration_seconds(text) for text in asked.node_aggregate_policy.durations)
        durations = tuple(dict.fromkeys(each for each in read if each and 1.0 <= each <= MAX_SPAN_SECONDS))
    with_cache = asked.node_memory_collect_policy == "usageWithPageCache"
    aggregate_seconds = max(float(asked.aggregate_duration_seconds or default.aggregate_seconds), MIN_AGGREGATE_SECONDS)
    return ReportPolicy(
        report_seconds=max(float(asked.report_interval_seconds or default.report_seconds), MIN_REPORT_SECONDS),
        aggregate_seconds=min(aggregate_seconds, MAX_SPAN_SECONDS),
        durations=durations[:MAX_DURATIONS],
        memory=Quantity.MEMORY_WITH_CACHE if with_cache else Quantity.MEMORY,
    )


class ReportSchedule:
    """Times of the reports of one agent; monotonic seconds. Agents that start together soon report apart."""

    def __init__(self, random: Random, first_within_seconds: float = 10.0) -> None:
        """The first report comes at a random time within `first_within_seconds` after the first question."""
        self._random = random
        self._first_within_seconds = first_within_seconds
        self._next_seconds = -math.inf
        self._last_seconds = -math.inf
        self._stated: frozenset[Hashable] = frozenset()

    def due(self, stated: frozenset[Hashable], now_seconds: float) -> bool:
        """Return whether to report now; `stated` is what must not wait for the interval when it changes."""
        if self._next_seconds == -math.inf:
            self._next_seconds = now_seconds + self._random.random() * self._first_within_seconds
        urgent = stated != self._stated and now_seconds - self._last_seconds >= URGENT_SECONDS
        return urgent or now_seconds >= self._next_seconds

    def reported(self, stated: frozenset[Hashable], interval_seconds: float, now_seconds: float) -> None:
        """Count a report as made."""
        self._stated, self._last_seconds = stated, now_seconds
        self._next_seconds = now_seconds + interval_seconds * (1.0 - JITTER * self._random.random())
