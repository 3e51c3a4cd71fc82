"""What is recommended for each workload and selector of a cluster, from what its pods used. Pure.

The protocol's Recommendation has requests alone. Bounds, the limit at which throttling ends, replicas and what they
rest on stand in an annotation, which both definitions of the kind keep.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from api.crds import Recommendation, WorkloadProfile
from api.kube.cpu_burst import is_busy
from api.kube.resources import CPU, QuantityError, parse_quantity
from api.protocol import ANNOTATION_ADVICE
from controllers.forecast.seasonal import PERIODS
from controllers.kinds import Pod
from controllers.recommend import replicas
from controllers.recommend.estimates import DEFAULTS, Bounds, RecommendSettings
from controllers.recommend.estimates import recommend as estimate
from controllers.recommend.losses import DEMAND_QUANTILE
from controllers.recommend.observed import MIN_HOURS, ObservedUsage, containers_of, request_of
from controllers.recommend.replicas import Demand, ReplicaAdvice, ReplicaSettings
from controllers.recommend.report import Amounts
from controllers.recommend.usage import Usage
from detector.histograms import DecayingHistograms, Rows, Values

THROTTLED_LEAST = 0.01
"""Seconds a second that pods lose to their own quota from which a limit is recommended."""


class ContainerAdvice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Recommended amounts of one container."""

    name: str
    cpu_millicores: Amounts | None = None
    memory_bytes: Amounts | None = None
    limit_millicores: int | None = None
    """CPU limit at which throttling ends, where the present one is too small for ordinary use."""


class Advice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Content of the annotation."""

    containers: list[ContainerAdvice] = []
    confidence_days: float = 0.0
    throttled: float | None = None
    """Seconds a second that one pod loses to its own quota."""
    demand: Demand | None = None
    replicas: ReplicaAdvice | None = None


def advice_of(stored: Recommendation) -> Advice | None:
    """Return the content of the annotation; None where there is none that can be read."""
    try:
        return msgspec.json.decode(stored.metadata.annotations.get(ANNOTATION_ADVICE, ""), type=Advice)
    except (msgspec.DecodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """Workloads to advise, as `Kind/namespace/name`, whose pods count as one."""

    workloads: tuple[str, ...]


def advise(
    observed: ObservedUsage,
    targets: Sequence[Target],
    profiles: Mapping[str, WorkloadProfile],
    estimates: RecommendSettings = DEFAULTS,
    settings: ReplicaSettings = replicas.DEFAULTS,
) -> list[Advice | None]:
    """Return what is recommended for each target; None where nothing was reported of it."""
    groups: list[tuple[int, str, list[int]]] = []
    """Target, container and rows of the usage."""
    for place, target in enumerate(targets):
        rows: dict[str, list[int]] = {}
        for name in target.workloads:
            for container, row in observed.aggregates.get(observed.rows.get(name, -1), {}).items():
                rows.setdefault(container, []).append(row)
        groups += [(place, container, rows[container]) for container in sorted(rows)]
    known = [group for group in groups if max(group[2]) < len(observed.usage)]
    usage, demand = _merged(observed, [np.array(rows, np.intp) for _, _, rows in known])
    count = np.bincount([place for place, _, _ in known], minlength=len(targets)) if known else np.zeros(0, np.int64)
    own = np.array([count[place] for place, _, _ in known], np.int64)
    every = np.arange(len(known))
    found = estimate(usage, every, own, estimates)
    median, most = (
        (usage.cpu.percentile(every, 0.5), demand.percentile(every, DEMAND_QUANTILE)) if known else (every, every)
    )
    made: list[list[ContainerAdvice]] = [[] for _ in targets]
    days = [0.0] * len(targets)
    pods = [[pod for name in target.workloads for pod in observed.replicas(name)] for target in targets]
    throttled = [_throttled(observed, target) for target in targets]
    for row, (place, container, _) in enumerate(known):
        limit = _limit(pods[place], container)
        busy = limit is not None and is_busy(float(median[row]) * 1000, limit)
        curable = busy and (throttled[place] or 0.0) >= THROTTLED_LEAST and float(most[row]) * 1000 > (limit or 0)
        made[place].append(
            ContainerAdvice(
                name=container,
                cpu_millicores=_amounts(found.cpu_millicores, row),
                memory_bytes=_amounts(found.memory_bytes, row),
                limit_millicores=math.ceil(float(most[row]) * 1000) if curable else None,
            )
        )
        days[place] = max(days[place], round(float(found.confidence[row]), 3))
    scaled = _replicas(observed, targets, pods, profiles, settings)
    return [
        Advice(
            containers=made[place],
            confidence_days=days[place],
            throttled=None if throttled[place] is None else round(throttled[place] or 0.0, 4),
            demand=scaled[place][0],
            replicas=scaled[place][1],
        )
        if made[place]
        else None
        for place in range(len(targets))
    ]


def _merged(observed: ObservedUsage, groups: Sequence[Rows]) -> tuple[Usage, DecayingHistograms]:
    """Return usage and demand with a row for each group of rows, all of whose samples count alike."""
    usage, demand = Usage(), DecayingHistograms(observed.demand.buckets, observed.demand.half_life_seconds)
    if not groups:
        return usage, demand
    lengths = np.array([len(rows) for rows in groups])
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    rows = np.concatenate(groups)
    for made, source in ((usage.cpu, observed.usage.cpu), (usage.memory, observed.usage.memory), (demand, None)):
        whole = source if source is not None else observed.demand
        made.reference_seconds = whole.reference_seconds
        made.weights = np.add.reduceat(whole.weights[rows], begins, axis=0)
    usage.first_cpu_seconds = np.fmin.reduceat(observed.usage.first_cpu_seconds[rows], begins)
    usage.last_cpu_seconds = np.fmax.reduceat(observed.usage.last_cpu_seconds[rows], begins)
    usage.cpu_samples = np.add.reduceat(observed.usage.cpu_samples[rows], begins)
    return usage, demand


def _replicas(
    observed: ObservedUsage,
    targets: Sequence[Target],
    pods: Sequence[Sequence[Pod]],
    profiles: Mapping[str, WorkloadProfile],
    settings: ReplicaSettings,
) -> list[tuple[Demand | None, ReplicaAdvice | None]]:
    """Return demand and replicas of targets that are one workload with enough history."""
    made: list[tuple[Demand | None, ReplicaAdvice | None]] = [(None, None)] * len(targets)
    chosen = [
        (place, observed.rows[target.workloads[0]])
        for place, target in enumerate(targets)
        if len(target.workloads) == 1
        and target.workloads[0] in observed.rows
        and pods[place]
        and observed.hours[observed.rows[target.workloads[0]]] >= MIN_HOURS
    ]
    if not chosen:
        return made
    rows = np.array([row for _, row in chosen], np.intp)
    bounds = observed.forecaster.coming(rows, observed.hour, PERIODS[-1])
    spread = observed.forecaster.forecast(rows, observed.hour).spread
    for number, (place, _) in enumerate(chosen):
        demand = Demand(
            request_cores=_request(pods[place]),
            replicas=len(pods[place]),
            sensitivity=_sensitivity(profiles.get(targets[place].workloads[0])),
        )
        own: Values = bounds[number]
        made[place] = demand, replicas.advice(own, float(spread[number]), demand, settings)
    return made


def _sensitivity(profile: WorkloadProfile | None) -> float:
    """Return seconds lost a second per unit of pressure on the CPU, the mean over the observed loads."""
    bins = [
        own
        for each in (profile.status.resources if profile else ())
        if each.name == "cpu"
        for own in each.sensitivity
        if math.isfinite(own.lost_seconds_per_pressure)
    ]
    weights = sum(max(own.samples, 1) for own in bins)
    return sum(own.lost_seconds_per_pressure * max(own.samples, 1) for own in bins) / weights if bins else 0.0


def _throttled(observed: ObservedUsage, target: Target) -> float | None:
    told = [float(observed.throttled[observed.rows[name]]) for name in target.workloads if name in observed.rows]
    known = [each for each in told if math.isfinite(each)]
    return max(known) if known else None


def _request(pods: Sequence[Pod]) -> float:
    """Return the CPU request of one replica in cores, the median of those that run."""
    found = sorted(sum(request_of(each, CPU) for each in containers_of(pod)) / 1000 for pod in pods)
    return found[len(found) // 2]


def _limit(pods: Sequence[Pod], container: str) -> float | None:
    """Return the largest CPU limit of a container's replicas in millicores; None where one has none."""
    texts = [each.resources.limits.get(CPU) for pod in pods for each in containers_of(pod) if each.name == container]
    try:
        amounts = [float(parse_quantity(text, 1000)) for text in texts if text is not None]
    except QuantityError:
        return None
    return max(amounts) if amounts and len(amounts) == len(texts) else None


def _amounts(bounds: Bounds, row: int) -> Amounts | None:
    lower, target, upper = (float(each[row]) for each in (bounds.lower, bounds.target, bounds.upper))
    if math.isnan(target):
        return None
    return Amounts(int(lower), int(target), None if upper >= 1e14 else int(upper))
