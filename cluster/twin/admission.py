"""Admission of a created object: its name, identity, defaults and checks."""

import re
from random import Random

from cluster.resources import Document, Key
from cluster.twin import status_errors
from cluster.twin.database import Database, ObjectTable
from cluster.twin.kinds import custom_kinds
from cluster.twin.pruning import prune

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def name_for(table: ObjectTable, namespace: str, metadata: Document, random: Random) -> str:
    """Return the object's name, generated if it asks for that; raises `StatusError` 422."""
    name: str = metadata.get("name", "")
    prefix = metadata.get("generateName", "")
    while not name and prefix:
        tail = "".join(random.choices(_SUFFIX_LETTERS, k=5))
        name = "" if Key(namespace, prefix + tail) in table.records else prefix + tail
    if not name:
        why = "Required value: name or generateName is required"
        raise status_errors.invalid(table.kind.name, "", "metadata.name", why)
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise status_errors.invalid(table.kind.name, name, "metadata.name", "must be an RFC 1123 subdomain")
    return name


def validate_metadata(kind: str, metadata: Document) -> None:
    """Check that labels and annotations are maps of strings, and labels short; raises `StatusError` 400 or 422."""
    for field in ("labels", "annotations"):
        texts = metadata.get(field) or {}
        if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
            raise status_errors.bad_request(f"json: cannot unmarshal metadata.{field}: not a map of strings")
    for name, value in (metadata.get("labels") or {}).items():
        if not (_LABEL.fullmatch(value) and _LABEL.fullmatch(name.rpartition("/")[2])):
            why = f"Invalid value: {name}={value}: at most 63 letters, digits and -_. between alphanumerics"
            raise status_errors.invalid(kind, str(metadata.get("name", "")), "metadata.labels", why)


def new_uid(random: Random) -> str:
    """Return a string of a UUID's form."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def set_defaults(database: Database, table: ObjectTable, document: Document) -> None:
    """Set, in place, the defaults that the server gives a new object of this kind."""
    name = table.kind.name
    if name == "Pod":
        _set_pod_defaults(database, document)
    elif name == "CustomResourceDefinition":
        serve_definition(database, document)
    elif name == "Namespace":
        document["status"] = {"phase": "Active"}
    if table.kind.schema is not None:
        pruned = prune(document, table.kind.schema)
        document.clear()
        document.update(pruned)


def serve_definition(database: Database, definition: Document) -> None:
    """Serve the kinds of a CustomResourceDefinition, with the status of a new one; raises `StatusError` 422."""
    metadata = definition["metadata"]
    protected = definition["spec"]["group"].endswith((".k8s.io", ".kubernetes.io"))
    if protected and "api-approved.kubernetes.io" not in (metadata.get("annotations") or {}):
        field, why = "metadata.annotations[api-approved.kubernetes.io]", "Required value: protected groups must have it"
        raise status_errors.invalid("CustomResourceDefinition", metadata["name"], field, why)
    for kind in custom_kinds(definition):
        database.serve(kind)
    definition["status"] = {
        "acceptedNames": {"kind": "", "plural": ""},
        "conditions": None,
        "storedVersions": [v["name"] for v in definition["spec"]["versions"] if v.get("storage")],
    }


def establish(definition: Document, stamp: str) -> None:
    """Report in place that the names of a definition are accepted and its kinds are served."""
    true = {"status": "True", "lastTransitionTime": stamp}
    definition["status"] |= {
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            {"type": "NamesAccepted", "reason": "NoConflicts"} | true,
            {"type": "Established", "reason": "InitialNamesAccepted"} | true,
        ],
    }


def _set_pod_defaults(database: Database, document: Document) -> None:
    spec = document.setdefault("spec", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    # Milder than the real admission, which also refuses a priority that its class does not give.
    if "priority" not in spec:
        spec["priority"] = _priority(database, document, spec.get("priorityClassName", ""))
    status: Document = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    document["status"] = status


def _priority(database: Database, document: Document, class_name: str) -> int:
    known = database.tables[("scheduling.k8s.io", "v1", "priorityclasses")].records
    if not class_name:
        defaults = (item.document for item in known.values() if item.document.get("globalDefault"))
        return max((int(item["value"]) for item in defaults), default=0)
    if class_name in _SYSTEM_PRIORITIES:
        return _SYSTEM_PRIORITIES[class_name]
    record = known.get(Key("", class_name))
    if record is None:
        why = f"no PriorityClass with name {class_name} was found"
        raise status_errors.forbidden("pods", document["metadata"]["name"], why)
    document["spec"]["preemptionPolicy"] = record.document.get("preemptionPolicy", "PreemptLowerPriority")
    return int(record.document["value"])


def qos_class(spec: Document) -> str:
    """Return Kubernetes' QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    demands = [item.get("resources") or {} for item in spec.get("containers") or ()]
    if not any(demand.get("requests") or demand.get("limits") for demand in demands):
        return "BestEffort"
    for demand in demands:
        limits = demand.get("limits") or {}
        requests = limits | (demand.get("requests") or {})
        if not {"cpu", "memory"} <= limits.keys() or any(requests[name] != limits[name] for name in limits):
            return "Burstable"
    return "Guaranteed"
