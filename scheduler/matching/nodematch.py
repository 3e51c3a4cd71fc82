"""Node selectors and affinity terms, compiled to lookups over label columns.

A requirement is answered once per distinct value of its label, then spread to rows by one array lookup.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.kube.meta import LabelSelectorRequirement as Requirement
from api.kube.objects import Pod, PreferredSchedulingTerm
from api.kube.selectors import NodeSelectorTerm, requirement_matches
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Node requirements and preferences of a class (all of `labels`, any of `terms` if not None) and would like."""

    labels: tuple[Requirement, ...]
    terms: tuple[NodeSelectorTerm, ...] | None
    preferred: tuple[PreferredSchedulingTerm, ...]


def requirement_rows(snapshot: Snapshot, requirement: Requirement, rows: Rows) -> NDArray[np.bool_]:
    """bool[rows]: nodes whose label satisfies the requirement."""
    column = snapshot.labels.column(requirement.key)
    answers = [requirement_matches(requirement, text) for text in column.texts]
    # A missing label has id -1, which reads the last entry.
    answers.append(requirement_matches(requirement, None))
    return np.array(answers, dtype=bool)[column.ids[rows]]


def field_rows(snapshot: Snapshot, requirement: Requirement, rows: Rows) -> NDArray[np.bool_]:
    """bool[rows]: nodes whose `metadata.name` satisfies the requirement; other fields match nothing."""
    known = requirement.key == "metadata.name"
    numbers = range(snapshot.rows_used)[rows] if isinstance(rows, slice) else rows.tolist()
    return np.array([known and requirement_matches(requirement, snapshot.names[row]) for row in numbers], bool)


def term_rows(snapshot: Snapshot, term: NodeSelectorTerm, rows: Rows) -> NDArray[np.bool_]:
    """bool[rows]: nodes that satisfy all of the term; a term that asks nothing matches nothing."""
    count = snapshot.live[rows].shape[0]
    if not term.match_expressions and not term.match_fields:
        return np.zeros(count, dtype=bool)
    matched = np.ones(count, dtype=bool)
    for requirement in term.match_expressions:
        matched &= requirement_rows(snapshot, requirement, rows)
    for requirement in term.match_fields:
        matched &= field_rows(snapshot, requirement, rows)
    return matched


def required_rows(snapshot: Snapshot, wanted: Wanted, rows: Rows) -> NDArray[np.bool_]:
    """bool[rows]: nodes that satisfy node selector and required affinity."""
    matched = np.ones(snapshot.live[rows].shape[0], dtype=bool)
    for requirement in wanted.labels:
        matched &= requirement_rows(snapshot, requirement, rows)
    if wanted.terms is not None:
        matched &= any_term(snapshot, wanted.terms, rows)
    return matched


def any_term(snapshot: Snapshot, terms: Sequence[NodeSelectorTerm], rows: Rows) -> NDArray[np.bool_]:
    """bool[rows]: nodes that satisfy at least one term."""
    matched = np.zeros(snapshot.live[rows].shape[0], dtype=bool)
    for term in terms:
        matched |= term_rows(snapshot, term, rows)
    return matched


def names_its_node(pod: Pod) -> bool:
    """Return whether the pod's required affinity names one node, as that of a DaemonSet's pods does."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else []
    return bool(terms) and all(
        any(
            each.key == "metadata.name" and each.operator == "In" and len(each.values) == 1
            for each in term.match_fields
        )
        for term in terms
    )


def wanted_of(info: PodInfo) -> Wanted:
    """Read the node requirements and preferences of the pod's spec."""
    spec = info.pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    labels = tuple(Requirement(key=key, operator="In", values=[text]) for key, text in spec.node_selector.items())
    required = affinity.required if affinity else None
    return Wanted(
        labels,
        tuple(required.node_selector_terms) if required else None,
        tuple(affinity.preferred) if affinity else (),
    )
