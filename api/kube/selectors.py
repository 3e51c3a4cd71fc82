"""Kubernetes selectors and what they match; a match is arithmetic on labels, never a decision."""

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
