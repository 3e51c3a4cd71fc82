"""Pod subresources binding and eviction, with disruption budgets honoured."""

from typing import Any

from cluster.resources import Document, Key
from cluster.twin import status_errors
from cluster.twin.database import ObjectTable, Record
from cluster.twin.registry import ObjectRegistry, own
from cluster.twin.selectors import labels_of, matches_selector

_BUDGET_CAUSE = "DisruptionBudget"
_REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
_TERMINAL = ("Succeeded", "Failed")


def bind(registry: ObjectRegistry, pods: ObjectTable, key: Key, body: Document) -> None:
    """POST pods/NAME/binding. Raises `StatusError` 409 unless the pod is free; annotations merge in."""
    record = registry.current(pods, key)
    metadata, spec = record.document["metadata"], record.document.get("spec", {})
    node = (body.get("target") or {}).get("name", "")
    asked = body.get("metadata") or {}
    if not node:
        raise status_errors.invalid("Binding", key.name, "target.name", "Required value")
    if asked.get("uid") and asked["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {asked['uid']}, UID in object meta: {metadata['uid']}"
        raise status_errors.conflict("pods/binding", key.name, why)
    if metadata.get("deletionTimestamp"):
        why = f"pod {key.name} is being deleted, cannot be assigned to a host"
        raise status_errors.conflict("pods/binding", key.name, why)
    if spec.get("nodeName"):
        why = f'pod {key.name} is already assigned to node "{spec["nodeName"]}"'
        raise status_errors.conflict("pods/binding", key.name, why)
    if spec.get("schedulingGates"):
        why = f"pod {key.name} has non-empty .spec.schedulingGates"
        raise status_errors.conflict("pods/binding", key.name, why)
    document = own(record.document)
    document["spec"]["nodeName"] = node
    if asked.get("annotations"):
        document["metadata"].setdefault("annotations", {}).update(asked["annotations"])
    set_condition(document, "PodScheduled", "True", registry.stamp())
    registry.put(pods, key, document)


def evict(registry: ObjectRegistry, pods: ObjectTable, key: Key, body: Document, *, dry_run: bool) -> None:
    """POST pods/NAME/eviction: checks and charges the budget, then deletes the pod."""
    record = registry.current(pods, key)
    options = body.get("deleteOptions") or {}
    dry_run = dry_run or bool(options.get("dryRun"))
    status = record.document.get("status", {})
    exempt = status.get("phase") in (*_TERMINAL, "Pending") or record.document["metadata"].get("deletionTimestamp")
    if not exempt:
        # Preconditions come with the delete, after the budget; checked first here, nothing is charged in vain.
        registry.delete(pods, key, options, dry_run=True)
        _charge(registry, record, dry_run=dry_run)
    registry.delete(pods, key, options, dry_run=dry_run)


def budgets_of(table: ObjectTable, pod: Record) -> list[Record]:
    """Return the disruption budgets that cover a pod."""
    return [
        record
        for record in table.records.values()
        if record.key.namespace == pod.key.namespace
        and matches_selector(record.document.get("spec", {}).get("selector"), labels_of(pod.document))
    ]


def ready(pod: Document) -> bool:
    """Return whether the pod's Ready condition is True."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def set_condition(document: Document, name: str, status: str, stamp: str) -> None:
    """Set one status condition; the transition time moves only with the status."""
    conditions: list[Any] = document.setdefault("status", {}).setdefault("conditions", [])
    known = next((item for item in conditions if item["type"] == name), None)
    if known is None:
        conditions.append({"type": name, "status": status, "lastTransitionTime": stamp})
    elif known["status"] != status:
        known.update({"status": status, "lastTransitionTime": stamp})
        known.pop("reason", None)


def _charge(registry: ObjectRegistry, pod: Record, *, dry_run: bool) -> None:
    table = registry.database.tables[("policy", "v1", "poddisruptionbudgets")]
    budgets = budgets_of(table, pod)
    if not budgets:
        return
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        # The real server hands this Status out as if it were the created object.
        raise status_errors.StatusError(500, "", message, http_status=201)
    budget = budgets[0]
    status, spec = budget.document.get("status", {}), budget.document.get("spec", {})
    if not ready(pod.document) and _unready_may_go(status, spec):
        return
    if status.get("observedGeneration", 0) < budget.document["metadata"].get("generation", 0):
        text = f"The disruption budget {budget.key.name} is still being processed by the server."
        raise _refused(text, retry_after_seconds=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refused(f"The disruption budget {budget.key.name} needs {needs} healthy pods and has {has} currently")
    if dry_run:
        return
    document = own(budget.document)
    document["status"]["disruptionsAllowed"] -= 1
    document["status"].setdefault("disruptedPods", {})[pod.key.name] = registry.stamp()
    registry.put(table, budget.key, document)


def _unready_may_go(status: Document, spec: Document) -> bool:
    # A pod that is not ready does not count as healthy, so evicting it costs the budget nothing.
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired: int = status.get("desiredHealthy", 0)
    return desired > 0 and bool(status.get("currentHealthy", 0) >= desired)


def _refused(cause: str, *, retry_after_seconds: int | None = None) -> status_errors.StatusError:
    return status_errors.StatusError(
        429,
        "TooManyRequests",
        _REFUSAL,
        causes=((_BUDGET_CAUSE, cause),),
        retry_after_seconds=retry_after_seconds,
    )
