"""Pods of named containers and the reports of their node, hour by hour, for the tests of live recommendations."""

from collections.abc import Mapping
from typing import Any

import msgspec

from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.kinds import NODE_METRIC, POD, Pod
from controllers.runtime.view import ClusterCopy, Projection
from tests.capacity import NOW, a_report, a_usage

BEGIN = NOW // 86400 * 86400
WEB = "Deployment/d/web"


def container(name: str, cpu: str = "", memory: str = "", limit: str = "") -> dict[str, Any]:
    requests = {key: text for key, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"name": name, "resources": {"requests": requests, "limits": {"cpu": limit} if limit else {}}}


def pod(name: str, *containers: Mapping[str, Any], labels: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1", "labels": dict(labels or {})}
    document = {
        "metadata": metadata,
        "spec": {"containers": list(containers), "nodeName": "n1", **spec},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(document, Pod)


def changed(*pods: Pod) -> list[StoreDelta[Any]]:
    return [StoreDelta(DeltaType.UPDATED, Key("d", each.metadata.name), None, each) for each in pods]


def gone(*names: str) -> list[StoreDelta[Any]]:
    return [StoreDelta(DeltaType.DELETED, Key("d", name), pod(name), None) for name in names]


def told(
    time: float,
    used: Mapping[str, tuple[object, object]],
    *,
    node: str = "n1",
    workload: object = WEB,
    throttled: object = None,
    waited: object = None,
) -> list[StoreDelta[Any]]:
    """The report of a node: cores and bytes by pod."""
    lost = {"throttled": throttled, "waited": waited}
    besides = {"workload": workload, **{key: value for key, value in lost.items() if value is not None}}
    pods = [a_usage(name, cores, memory, extensions=besides) for name, (cores, memory) in used.items()]
    return [StoreDelta(DeltaType.UPDATED, Key("", node), None, a_report(node, pods=pods, updated=rfc3339(time)))]


def daily(hour: int) -> float:
    """Cores: 8 from 9 to 17 o'clock, else 1."""
    return 8.0 if 9 <= hour % 24 < 17 else 1.0


def live(
    found: Projection[Any] | ClusterCopy, days: int, *, begin: float = BEGIN, every: float = 1800.0, **more: Any
) -> float:
    """Have a node report of a pod for days, half-hourly; return the time of the last report."""
    time = begin
    for step in range(int(days * 86400 / every)):
        time = begin + step * every
        cores = daily(int(time - BEGIN) // 3600)
        found.apply(NODE_METRIC, told(time, {"web-1": (f"{cores * 1000:.0f}m", "1000000000")}, **more))
    return time


def placed(found: Projection[Any] | ClusterCopy, *pods: Pod) -> None:
    found.apply(POD, changed(*pods))
