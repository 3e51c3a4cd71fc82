"""Answers of the API external.metrics.k8s.io/v1beta1 from what is known of workloads. Pure.

    GET /apis/external.metrics.k8s.io/v1beta1
    GET .../namespaces/shop/koord_cpu_cores_ahead?labelSelector=kind=Deployment,name=web

A series has the labels `kind` and `name` of its workload. An autoscaler adds up the series that its selector selects.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from api.kube.selectors import SelectorError, label_selector_matches, parse_label_selector
from api.kube.times import rfc3339
from cluster.serving import Reply

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP_VERSION}"
HOUR_SECONDS = 3600.0
MOST_SERIES = 1000
"""Series in one answer."""


class Series(NamedTuple):
    """One workload: sums of its pods' CPU use in cores; NaN for a forecast that there is none of."""

    namespace: str
    kind: str
    name: str
    heard_seconds: float
    """Time of the last report of it."""
    hour: int
    """Hour since the epoch that `this_hour_cores` is of."""
    now_cores: float
    this_hour_cores: float
    next_hour_cores: float


Look = Callable[[str], Iterable[Series]]
"""Returns the workloads of a namespace."""


def ahead(series: Series, now: float, lead_seconds: float) -> float:
    """Return the use to be ready for: the present one, or a higher forecast for now or `lead_seconds` from now.

    The forecast counts for the hours that it was made for; one that is older counts no more.
    """
    said = {series.hour: series.this_hour_cores, series.hour + 1: series.next_hour_cores}
    hours = {int(now // HOUR_SECONDS), int((now + lead_seconds) // HOUR_SECONDS)}
    coming = [said[hour] for hour in hours if hour in said and math.isfinite(said[hour])]
    return max([series.now_cores, *coming])


METRICS: Mapping[str, Callable[[Series, float, float], float]] = {
    "koord_cpu_cores": lambda series, _now, _lead: series.now_cores,
    "koord_cpu_cores_ahead": ahead,
}
"""Value in cores by name of the metric, from a series, the time and the lead."""


def answer(target: str, look: Look, now: float, *, lead_seconds: float, fresh_seconds: float) -> Reply:
    """Return the answer to a GET of a path with its query."""
    try:
        url = urlsplit(target)
        query = parse_qs(url.query)
    except ValueError:
        return refusal(400, "BadRequest", "the path cannot be read")
    if url.path.rstrip("/") == ROOT:
        return _json(200, _resources())
    parts = [unquote(part) for part in url.path.removeprefix(f"{ROOT}/").split("/")]
    if not url.path.startswith(f"{ROOT}/") or len(parts) != 3 or parts[0] != "namespaces":
        return refusal(404, "NotFound", f"there is {ROOT}/namespaces/NAMESPACE/METRIC")
    _, namespace, metric = parts
    value = METRICS.get(metric)
    if value is None:
        return refusal(404, "NotFound", f"there is no metric {metric[:80]!r}; there are {', '.join(METRICS)}")
    try:
        selector = parse_label_selector(",".join(query.get("labelSelector", ())))
    except SelectorError as error:
        return refusal(400, "BadRequest", f"labelSelector: {error}")
    items = []
    for each in look(namespace):
        labels = {"kind": each.kind, "name": each.name}
        if now - each.heard_seconds > fresh_seconds or not label_selector_matches(selector, labels):
            continue
        cores = value(each, now, lead_seconds)
        if not math.isfinite(cores):
            continue
        items.append(
            {
                "metricName": metric,
                "metricLabels": labels,
                "timestamp": rfc3339(each.heard_seconds),
                "value": f"{math.ceil(max(cores, 0.0) * 1000)}m",
            }
        )
        if len(items) > MOST_SERIES:
            return refusal(400, "BadRequest", f"more than {MOST_SERIES} series: select one by the labels kind and name")
    found = {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}
    return _json(200, found)


def refusal(code: int, reason: str, message: str) -> Reply:
    """Return an error as the API server writes them."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return _json(code, {**status, "message": message, "reason": reason, "code": code})


def _resources() -> dict[str, Any]:
    listed = [
        {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        for name in METRICS
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": listed}


def _json(status: int, document: Any) -> Reply:
    return Reply(status, msgspec.json.encode(document))
