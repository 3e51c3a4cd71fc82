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
from controllers.recommend.losses import DAY_SECONDS, DEMAND_QUANTILE
from controllers.recommend.on_demand import cured_a_second, waited_a_second
from controllers.recommend.outlook import MIN_HOURS, ObservedUsage
from controllers.recommend.replicas import Demand, ReplicaAdvice, ReplicaSettings
from controllers.recommend.report import Amounts
from controllers.recommend.samples import containers_of, request_of
from controllers.recommend.usage import CPU_BUCKETS, HALF_LIFE_SECONDS, Usage
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
    waited_seconds: float | None = None
    """Seconds a day that one replica waited for CPUs that neighbours held; none where no report told of it."""
    cured_seconds: float | None = None
    """Part of it that the recommended request would have cured, beyond what the present one entitles to."""
    request_millicores: int | None = None
    """The present request that this is compared with."""


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


_AT_ONCE = 2048
"""Targets: the histograms of so many take 9 MB."""


def advise(
    observed: ObservedUsage,
    targets: Sequence[Target],
    profiles: Mapping[str, WorkloadProfile],
    estimates: RecommendSettings = DEFAULTS,
    settings: ReplicaSettings = replicas.DEFAULTS,
) -> list[Advice | None]:
    """Return what is recommended for each target; None where nothing was reported of it."""
    made: list[Advice | None] = []
    for begin in range(0, len(targets), _AT_ONCE):
        made += _advise(observed, targets[begin : begin + _AT_ONCE], profiles, estimates, settings)
    return made


def _advise(
    observed: ObservedUsage,
    targets: Sequence[Target],
    profiles: Mapping[str, WorkloadProfile],
    estimates: RecommendSettings,
    settings: ReplicaSettings,
) -> list[Advice | None]:
    groups: list[tuple[int, str, list[int]]] = []
    """Target, container and rows of the usage."""
    for place, target in enumerate(targets):
        rows: dict[str, list[int]] = {}
        for name in target.workloads:
            for container, row in observed.aggregates.get(observed.rows.get(name, -1), {}).items():
                rows.setdefault(container, []).append(row)
        groups += [(place, container, rows[container]) for container in sorted(rows)]
    known = [group for group in groups if max(group[2]) < len(observed.usage)]
    merged = [np.array(rows, np.intp) for _, _, rows in known]
    usage, demand = _merged(observed, merged)
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
    waits = observed.waits.of(merged)
    waited = waited_a_second(waits) * DAY_SECONDS
    requests = np.array([_request_of(pods[place], container) for place, container, _ in known])
    cured = cured_a_second(waits, requests / 1000, found.cpu_millicores.target / 1000) * DAY_SECONDS
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
                waited_seconds=_rounded(waited[row]),
                cured_seconds=_rounded(cured[row]),
                request_millicores=None if math.isnan(waited[row]) else int(requests[row]),
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
    usage, demand = Usage(), DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS)
    if not groups:
        return usage, demand
    lengths = np.array([len(rows) for rows in groups])
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    rows = np.concatenate(groups)
    for made, whole in ((usage.cpu, observed.usage.cpu), (usage.memory, observed.usage.memory)):
        made.reference_seconds = whole.reference_seconds
        made.weights = np.add.reduceat(whole.weights[rows].astype(np.float64), begins, axis=0)
    demand.reference_seconds = usage.cpu.reference_seconds
    demand.weights = np.add.reduceat(observed.demand.weights(rows), begins, axis=0)
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


def _request_of(pods: Sequence[Pod], container: str) -> float:
    """Return the CPU that a container asks for in millicores, the median of its replicas; 0 without a request."""
    found = sorted(request_of(each, CPU) for pod in pods for each in containers_of(pod) if each.name == container)
    return found[len(found) // 2] if found else 0.0


def _rounded(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(float(seconds), 1)


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
