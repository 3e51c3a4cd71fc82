"""Nodes, pods and reports with amounts, for the tests of the manager's capacity."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.crds import NodeMetric
from controllers.kinds import Node, Pod

G = 1_000_000_000
NOW = 1_800_000_000.0
UPDATED = "2027-01-15T08:00:00Z"


def a_node(name: str = "n1", cpu: object = 100, memory: object = "120G", **more: Any) -> Node:
    resources = {"cpu": str(cpu), "memory": str(memory)}
    published = {name: str(value) for name, value in more.get("published", {}).items()}
    meta = {"name": name, "resourceVersion": "1"}
    meta |= {"labels": more.get("labels", {}), "annotations": more.get("annotations", {})}
    status = {
        "capacity": {**resources, **published},
        "allocatable": {**resources, **more.get("allocatable", {}), **published},
    }
    return msgspec.convert({"metadata": meta, "status": status}, Node)


def a_pod(
    name: str,
    cpu: object = 0,
    memory: object = 0,
    *,
    node: str = "n1",
    qos: str = "",
    priority: int | None = None,
    phase: str = "Running",
    guaranteed: bool = False,
    requests: Mapping[str, object] | None = None,
    **meta: Any,
) -> Pod:
    amounts = {"cpu": str(cpu), "memory": str(memory)} if cpu or memory else {}
    amounts |= {each: str(value) for each, value in (requests or {}).items()}
    resources = {"requests": amounts, "limits": amounts if guaranteed else {}}
    labels = {**({"koordinator.sh/qosClass": qos} if qos else {}), **meta.pop("labels", {})}
    document = {
        "metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1", "labels": labels, **meta},
        "spec": {"nodeName": node, "priority": priority, "containers": [{"resources": resources}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, Pod)


def usage(cpu: object, memory: object) -> dict[str, Any]:
    return {"resources": {"cpu": str(cpu), "memory": str(memory)}}


def a_report(
    node: str = "n1",
    *,
    pods: Sequence[Mapping[str, Any]] = (),
    system: tuple[object, object] = (0, 0),
    used: tuple[object, object] | None = None,
    reclaimable: tuple[object, object] | None = None,
    applications: Sequence[Mapping[str, Any]] = (),
    updated: str | None = UPDATED,
    extensions: Mapping[str, Any] | None = None,
) -> NodeMetric:
    status: dict[str, Any] = {
        "updateTime": updated,
        "nodeMetric": {"systemUsage": usage(*system), **({"nodeUsage": usage(*used)} if used else {})},
        "podsMetric": list(pods),
        "hostApplicationMetric": list(applications),
    }
    if reclaimable:
        status["prodReclaimableMetric"] = {"resource": usage(*reclaimable)}
    if extensions:
        status["extensions"] = dict(extensions)
    return msgspec.convert({"metadata": {"name": node, "resourceVersion": "1"}, "status": status}, NodeMetric)


def a_usage(name: str, cpu: object, memory: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "d", "podUsage": usage(cpu, memory), **more}


def to_load(obj: msgspec.Struct) -> dict[str, Any]:
    """Return an object as it is created: without version and uid."""
    document: dict[str, Any] = msgspec.to_builtins(obj)
    for name in ("resourceVersion", "uid"):
        document["metadata"].pop(name, None)
    return document
