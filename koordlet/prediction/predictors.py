"""Production's reclaimable resources and peak, from the peaks of pods and of priority classes. Pure.

Two predictions are made and the more careful one counts: pod by pod, where peaks add up that never meet, and by
priority class, where pods of a class smooth each other out but a single one's growth goes unseen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.kube.resources import CPU, MEMORY, Resources
from api.qos import PriorityBand
from koordlet.prediction.models import SYSTEM, Peak, node_item

RECLAIMED_FROM = (PriorityBand.PROD, PriorityBand.NONE)
"""Classes whose requests are reclaimed from; those of others are no promise of the node's own resources."""


@dataclass(frozen=True, slots=True)
class PredictedPod:
    """A pod as the predictors need it."""

    uid: str
    band: PriorityBand
    requests: Mapping[str, int]
    """By resource name, CPU in millicores."""
    age_seconds: float
    active: bool = True
    """Neither finished nor terminating."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """CPU in millicores and memory in bytes, by resource name."""

    reclaimable: Resources
    """Requested by production and not used at its peak."""
    peak: Resources
    """Peak of production."""


def predict(
    pods: Sequence[PredictedPod],
    peaks: Mapping[str, Peak],
    allocatable: Mapping[str, int],
    *,
    margin_percent: int,
    cold_start_seconds: float,
) -> Prediction | None:
    """Return the smaller reclaimable amount and the larger peak of both predictions, resource by resource.

    None before anything is known about the node's own programs, without which there is no safe answer.
    """
    by_class = by_priority(pods, peaks, allocatable, margin_percent=margin_percent)
    if by_class is None:
        return None
    by_pods = by_pod(pods, peaks, allocatable, margin_percent=margin_percent, cold_start_seconds=cold_start_seconds)
    return Prediction(
        {name: min(by_pods.reclaimable[name], by_class.reclaimable[name]) for name in (CPU, MEMORY)},
        {name: max(by_pods.peak[name], by_class.peak[name]) for name in (CPU, MEMORY)},
    )


def by_pod(
    pods: Iterable[PredictedPod],
    peaks: Mapping[str, Peak],
    allocatable: Mapping[str, int],
    *,
    margin_percent: int,
    cold_start_seconds: float,
) -> Prediction:
    """Sum what each pod requests beyond its peak; a young pod, or one without a model, keeps its whole request."""
    reclaimable = dict.fromkeys((CPU, MEMORY), 0)
    unreclaimable = dict.fromkeys((CPU, MEMORY), 0)
    unpredicted = dict.fromkeys((CPU, MEMORY), 0)
    for pod in pods:
        if pod.band not in RECLAIMED_FROM or not pod.active:
            continue
        peak = peaks.get(pod.uid)
        if pod.age_seconds <= cold_start_seconds or peak is None:
            for name in unpredicted:
                unpredicted[name] += pod.requests.get(name, 0)
            continue
        for name, amount in with_margin(peak, margin_percent).items():
            unreclaimable[name] += amount
            reclaimable[name] += max(pod.requests.get(name, 0) - amount, 0)
    return Prediction(
        _fitting(reclaimable, unreclaimable, allocatable),
        {name: unreclaimable[name] + unpredicted[name] for name in unreclaimable},
    )


def by_priority(
    pods: Iterable[PredictedPod], peaks: Mapping[str, Peak], allocatable: Mapping[str, int], *, margin_percent: int
) -> Prediction | None:
    """Compare the requests of a class with its peak and the node's own; None without a model of the latter."""
    system = peaks.get(node_item(SYSTEM))
    if system is None:
        return None
    nothing = Peak(0, 0)
    parts = [system, *(peaks.get(node_item(band.value), nothing) for band in RECLAIMED_FROM)]
    whole = Peak(sum(part.cpu_millicores for part in parts), sum(part.memory_bytes for part in parts))
    unreclaimable = with_margin(whole, margin_percent)
    requests = dict.fromkeys((CPU, MEMORY), 0)
    for pod in pods:
        if pod.band in RECLAIMED_FROM and pod.active:
            for name in requests:
                requests[name] += pod.requests.get(name, 0)
    reclaimable = {name: max(requests[name] - unreclaimable[name], 0) for name in requests}
    return Prediction(_fitting(reclaimable, unreclaimable, allocatable), unreclaimable)


def with_margin(peak: Peak, margin_percent: int) -> Resources:
    """Return a peak with the margin on top, in whole millicores and bytes."""
    factor = (100 + margin_percent) / 100
    return {CPU: int(peak.cpu_millicores * factor), MEMORY: int(peak.memory_bytes * factor)}


def _fitting(reclaimable: Resources, unreclaimable: Resources, allocatable: Mapping[str, int]) -> Resources:
    """Return what is reclaimable and not beyond the node; a resource that the node does not name gives nothing."""
    return {
        name: min(max(allocatable.get(name, 0) - unreclaimable[name], 0), reclaimable[name]) for name in reclaimable
    }
