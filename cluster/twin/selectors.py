"""Label and field selectors in the API's text syntax, parsed into a predicate over documents."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cluster.resources import Document
from cluster.twin.kinds import ServedKind
from cluster.twin.status_errors import bad_request

Predicate = Callable[[Document], bool]

_COMMON = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS: dict[str, frozenset[str]] = {
    "Pod": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "Node": frozenset({"spec.unschedulable"}),
    "Namespace": frozenset({"status.phase"}),
    "Event": frozenset(
        {
            "reason",
            "type",
            "reportingController",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
        }
    ),
}

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_PAIR = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<operator>!=|==|=)\s*(?P<value>[^=!\s]*)$")
_KEY = re.compile(r"^(?P<absent>!?)\s*(?P<key>[A-Za-z0-9][^=!\s,()]*)$")
_COMMA = re.compile(r",(?![^()]*\))")


@lru_cache(maxsize=512)
def predicate(kind: ServedKind, labels: str, fields: str) -> Predicate | None:
    """Return the predicate of both selectors together; None when they select everything. Raises `StatusError` 400."""
    terms = [_label_term(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    terms += [_field_term(kind, part.strip()) for part in fields.split(",") if part.strip()]
    if not terms:
        return None
    return lambda document: all(term(document) for term in terms)


def _label_term(text: str) -> Predicate:
    if match := _SET.match(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return _label_set(match["key"], values, wanted=match["operator"] == "in")
    if match := _PAIR.match(text):
        return _label_set(match["key"], frozenset({match["value"]}), wanted=match["operator"] != "!=")
    if match := _KEY.match(text):
        key, present = match["key"], not match["absent"]
        return lambda document: (key in labels_of(document)) == present
    raise bad_request(f"unable to parse requirement: {text!r}")


def _label_set(key: str, values: frozenset[str], *, wanted: bool) -> Predicate:
    # An absent label satisfies notin and !=, as the API defines it.
    if wanted:
        return lambda document: labels_of(document).get(key) in values
    return lambda document: labels_of(document).get(key) not in values


def _field_term(kind: ServedKind, text: str) -> Predicate:
    match = _PAIR.match(text)
    if match is None:
        raise bad_request(f"invalid field selector {text!r}")
    field, value = match["key"], match["value"]
    if field not in _COMMON and (kind.custom or field not in _FIELDS.get(kind.name, frozenset())):
        raise bad_request(f'field label not supported for {kind.name}: "{field}"')
    path, equal = tuple(field.split(".")), match["operator"] != "!="
    return lambda document: (_text(document, path) == value) == equal


def _text(document: Document, path: tuple[str, ...]) -> str:
    value: Any = document
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        # Absent booleans select as false, absent texts as empty.
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(value)


def labels_of(document: Document) -> dict[str, str]:
    """Return the object's labels."""
    return document["metadata"].get("labels") or {}


def matches_selector(selector: Document | None, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector object selects these labels; an absent or empty one selects nothing.

    That is the rule for disruption budgets in eviction, the only place where the twin needs it.
    """
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return False
    pairs = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in pairs.items()) and all(
        _expression_holds(item, labels) for item in selector.get("matchExpressions") or ()
    )


def _expression_holds(expression: Document, labels: dict[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
