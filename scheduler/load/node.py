"""Usage of a node as far as known: its last report, corrected for pods too new to show in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.kube.resources import Resources


@dataclass(frozen=True, slots=True)
class PodLoad:
    """A pod's reported usage; `prod` as the reporter classed it."""

    usage: Resources
    prod: bool = False


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One report about one node. `usage` None: the report has no figures."""

    update_seconds: float | None
    report_interval_seconds: float = 60.0
    usage: Resources | None = None
    aggregated: Mapping[tuple[str, float], Resources] = field(default_factory=dict)
    """By aggregation type (avg, p50, p90, p95, p99) and window in seconds."""
    system: Resources = field(default_factory=dict)
    pods: Mapping[str, PodLoad] = field(default_factory=dict)
    """By `namespace/name`."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A pod placed on the node, bound or only assumed."""

    key: str
    estimate: Resources
    since_seconds: float
    prod: bool = False
    estimated_until_seconds: float | None = None
    """Until then its estimate counts whatever is reported."""


class LoadScope(StrEnum):
    """Pods whose usage counts."""

    NODE = "node"
    PROD = "prod"


@dataclass(frozen=True, slots=True)
class LoadView:
    """One way to look at a node's load."""

    scope: LoadScope = LoadScope.NODE
    aggregation: str = ""
    """Percentile to take instead of the window average; empty for the average."""
    window_seconds: float = 0.0
    """Window of the percentile; 0 for the longest reported."""
    with_system: bool = False
    """Prod scope: count the system's usage as well."""


def used(view: LoadView, load: NodeLoad, assigned: Iterable[Assigned]) -> Resources:
    """Usage in this view: what was reported plus what the report cannot show yet."""
    total = base(view, load)
    for pod in assigned:
        _add(total, contribution(view, load, pod))
    return total


def base(view: LoadView, load: NodeLoad) -> Resources:
    """The part of `used` that does not depend on the pods placed."""
    if view.scope is LoadScope.PROD:
        return dict(load.system) if view.with_system else {}
    return dict(_reported(view, load) or {})


def contribution(view: LoadView, load: NodeLoad, pod: Assigned) -> Resources:
    """Usage that one placed pod adds to `base`.

    A pod is too new when it has no figures, was placed after the reported interval began, or is to be
    estimated for longer; it then adds what its estimate exceeds its figures by. In the prod scope only prod
    pods count, by their figures where they are reported as prod.
    """
    reported = load.pods.get(pod.key)
    if view.scope is LoadScope.PROD:
        return _prod_contribution(pod, reported, load)
    if _reported(view, load) is None:
        return pod.estimate
    return _excess(pod.estimate, reported) if too_new(pod, reported, load) else {}


def _prod_contribution(pod: Assigned, reported: PodLoad | None, load: NodeLoad) -> Resources:
    if not pod.prod:
        return {}
    if reported is None or not reported.prod:
        return pod.estimate
    figures = dict(reported.usage)
    if too_new(pod, reported, load):
        _add(figures, _excess(pod.estimate, reported))
    return figures


def too_new(pod: Assigned, reported: PodLoad | None, load: NodeLoad) -> bool:
    """Return whether the report cannot be trusted to contain the pod."""
    update = load.update_seconds
    if reported is None or update is None or update - load.report_interval_seconds < pod.since_seconds:
        return True
    return pod.estimated_until_seconds is not None and pod.estimated_until_seconds > update


def _reported(view: LoadView, load: NodeLoad) -> Resources | None:
    """The reported figure; None when the wanted window is missing, so that estimates take its place."""
    if not view.aggregation:
        return load.usage or {}
    if view.window_seconds > 0:
        return load.aggregated.get((view.aggregation, view.window_seconds))
    windows = [window for kind, window in load.aggregated if kind == view.aggregation]
    if not windows:
        return load.usage or {}
    return load.aggregated[view.aggregation, max(windows)]


def expired(load: NodeLoad, now: float, expiration_seconds: float) -> bool:
    """True when the report is too old to rely on, or was never dated."""
    return load.update_seconds is None or now - load.update_seconds >= expiration_seconds


def _add(total: Resources, amounts: Resources) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _excess(estimate: Resources, reported: PodLoad | None) -> Resources:
    figures = reported.usage if reported else {}
    return {name: max(amount - figures.get(name, 0), 0) for name, amount in estimate.items()}
