"""Kubernetes selectors and what they match; a match is arithmetic on labels, never a decision."""

import re
from collections.abc import Mapping

from api.kube.meta import LabelSelector, Wire
from api.kube.meta import LabelSelectorRequirement as Requirement


class NodeSelectorTerm(Wire, frozen=True):
    """Requirements on labels and fields, all of which must hold; a term without any matches nothing."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Wire, frozen=True):
    """Terms, any of which may hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class SelectorError(ValueError):
    """Text that is no selector; the message names the part."""


_COMMA = re.compile(r",(?![^()]*\))")
_KEY = r"(?P<key>[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_PAIR = re.compile(rf"{_KEY}\s*(?P<sign>!=|==|=)\s*(?P<value>[A-Za-z0-9._-]*)")
_SET = re.compile(rf"{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[A-Za-z0-9._,\s-]*)\)")
_PRESENT = re.compile(rf"(?P<sign>!?)\s*{_KEY}")


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector that `kubectl -l` reads from `text`; empty text selects everything. Raises SelectorError."""
    return LabelSelector(match_expressions=[_requirement(part.strip()) for part in _COMMA.split(text) if part.strip()])


def _requirement(part: str) -> Requirement:
    if found := _PAIR.fullmatch(part):
        operator = "NotIn" if found["sign"] == "!=" else "In"
        return Requirement(key=found["key"], operator=operator, values=[found["value"]])
    if found := _SET.fullmatch(part):
        operator = "In" if found["sign"] == "in" else "NotIn"
        values = [each.strip() for each in found["values"].split(",")]
        return Requirement(key=found["key"], operator=operator, values=values)
    if found := _PRESENT.fullmatch(part):
        return Requirement(key=found["key"], operator="DoesNotExist" if found["sign"] else "Exists")
    raise SelectorError(f"{part!r} is no requirement; expected key=value, key!=value, key in (a,b), key or !key")


def requirement_matches(requirement: Requirement, value: str | None) -> bool:
    """Return whether a label `value` (None = absent) satisfies the requirement; unknown operators match nothing."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    try:
        have, bound = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if requirement.operator == "Gt" else have < bound


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether `labels` satisfy the selector; None matches nothing, an empty selector everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        requirement_matches(requirement, labels.get(requirement.key)) for requirement in selector.match_expressions
    )


def node_term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node with `labels` and `name` satisfies the term."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(requirement_matches(item, labels.get(item.key)) for item in term.match_expressions) and all(
        requirement_matches(item, fields.get(item.key)) for item in term.match_fields
    )
