"""Disruption controller: the status of each PodDisruptionBudget, kept current as pods come and go."""

import math

from cluster.resources import Document, Key
from cluster.twin.database import Database, Record, in_namespace
from cluster.twin.pod_subresources import ready
from cluster.twin.registry import ObjectRegistry, own
from cluster.twin.selectors import labels_of, matches_selector

_SCALES = {
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "ReplicationController": ("", "v1", "replicationcontrollers"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
}


def update_budgets(registry: ObjectRegistry, namespace: str) -> None:
    """Bring the status of every budget of a namespace up to date."""
    database = registry.database
    table = database.tables[("policy", "v1", "poddisruptionbudgets")]
    for budget in list(in_namespace(table.records, namespace)):
        wanted = status_of(database, budget)
        if wanted != budget.document.get("status"):
            document = own(budget.document)
            document["status"] = wanted
            registry.put(table, budget.key, document)


def status_of(database: Database, budget: Record) -> Document:
    """Status by the arithmetic of the controller.

    desired = minAvailable, or expected - maxUnavailable (percentages of expected, rounded up);
    allowed = max(0, healthy - desired). Pods under deletion or about to be evicted are not healthy.
    """
    spec, before = budget.document.get("spec", {}), budget.document.get("status", {})
    pods = [
        record.document
        for record in in_namespace(database.tables[("", "v1", "pods")].records, budget.key.namespace)
        if matches_selector(spec.get("selector"), labels_of(record.document))
        and record.document.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
    # An evicted pod leaves this list by being deleted or, unbound, by being gone.
    evicting = {
        name: since
        for name, since in (before.get("disruptedPods") or {}).items()
        if any(pod["metadata"]["name"] == name and not pod["metadata"].get("deletionTimestamp") for pod in pods)
    }
    healthy = sum(
        ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in evicting
        for pod in pods
    )
    expected, desired = _wanted(database, spec, pods)
    status: Document = {
        "observedGeneration": budget.document["metadata"].get("generation", 0),
        "disruptionsAllowed": max(0, healthy - desired),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    return status | ({"disruptedPods": evicting} if evicting else {})


def _wanted(database: Database, spec: Document, pods: list[Document]) -> tuple[int, int]:
    if "maxUnavailable" in spec:
        expected = _expected(database, pods)
        return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
    least = spec.get("minAvailable", 1)
    if isinstance(least, int):
        return len(pods), least
    expected = _expected(database, pods)
    return expected, _scaled(least, expected)


def _expected(database: Database, pods: list[Document]) -> int:
    """Replicas of the pods' controllers; a pod without one that is known counts for itself."""
    scales: dict[tuple[str, str], int] = {}
    alone = 0
    for pod in pods:
        owner = next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)
        place = _SCALES.get(owner["kind"]) if owner else None
        table = database.table(*place) if place else None
        record = table.records.get(Key(pod["metadata"]["namespace"], owner["name"])) if table and owner else None
        if record is None or owner is None:
            alone += 1
        else:
            scales[(owner["kind"], owner["name"])] = int(record.document.get("spec", {}).get("replicas", 1))
    return alone + sum(scales.values())


def _scaled(value: int | str, whole: int) -> int:
    if isinstance(value, int):
        return value
    return math.ceil(int(value.rstrip("%")) * whole / 100)
