"""Pod affinity terms, resolved: which namespaces, which selector, which topology."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from api.kube.meta import LabelSelector
from api.kube.objects import Pod, PodAffinity, PodAffinityTerm
from api.kube.selectors import label_selector_matches
from scheduler.cluster_state.topology import with_label_keys, without_label_values

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A term with its namespaces resolved for one pod. Equal terms of different pods are equal values."""

    topology_key: str
    namespaces: frozenset[str] | None
    """None means all."""
    encoded: bytes
    """The selector; also what makes terms comparable."""

    @property
    def selector(self) -> LabelSelector | None:
        """The selector, decoded; None matches nothing."""
        return msgspec.msgpack.decode(self.encoded, type=LabelSelector | None)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the term means a pod in that namespace with those labels."""
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and label_selector_matches(self.selector, labels)


@dataclass(frozen=True, slots=True)
class Terms:
    """All affinity terms of a pod; preferred ones with their weight, negative for anti-affinity."""

    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred: tuple[tuple[AffinityTerm, int], ...]

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred)


def terms_of(pod: Pod, namespaces: NamespaceLabels) -> Terms:
    """The pod's terms, with namespace selectors resolved against `namespaces`."""
    affinity = pod.spec.affinity
    toward = (affinity.pod_affinity if affinity else None) or PodAffinity()
    away = (affinity.pod_anti_affinity if affinity else None) or PodAffinity()
    return Terms(
        tuple(_resolved(term, pod, namespaces) for term in toward.required),
        tuple(_resolved(term, pod, namespaces) for term in away.required),
        tuple((_resolved(item.pod_affinity_term, pod, namespaces), item.weight) for item in toward.preferred)
        + tuple((_resolved(item.pod_affinity_term, pod, namespaces), -item.weight) for item in away.preferred),
    )


def _resolved(term: PodAffinityTerm, pod: Pod, namespaces: NamespaceLabels) -> AffinityTerm:
    selector = term.label_selector
    if selector is not None:
        labels = pod.metadata.labels
        selector = with_label_keys(selector, labels, term.match_label_keys)
        selector = without_label_values(selector, labels, term.mismatch_label_keys)
    encoded = msgspec.msgpack.encode(selector, order="sorted")
    return AffinityTerm(term.topology_key, _namespaces(term, pod, namespaces), encoded)


def _namespaces(term: PodAffinityTerm, pod: Pod, known: NamespaceLabels) -> frozenset[str] | None:
    """Named and selected namespaces; the pod's own when neither is given; None for an empty selector (all)."""
    chosen = term.namespace_selector
    if chosen is None:
        return frozenset(term.namespaces or [pod.metadata.namespace])
    if not chosen.match_labels and not chosen.match_expressions:
        return None
    selected = {name for name, labels in known.items() if label_selector_matches(chosen, labels)}
    return frozenset(selected.union(term.namespaces))
