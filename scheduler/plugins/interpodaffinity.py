"""InterPodAffinity: pods attract and repel pods within topology domains, in both directions.

A pod's own terms ask how many matching pods a domain holds. Terms of pods already placed ask how many carriers
of a term that means this pod a domain holds. Both are counts per row, summed over domains.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Namespace
from cluster.resources import NAMESPACES
from scheduler.cluster_state.columns import Column, Row, Rows
from scheduler.cluster_state.podcounts import PodCount
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cluster_state.topology import domain_ids, domain_sums, pod_count
from scheduler.framework import MAX_SCORE, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Scope, Scores, Write
from scheduler.matching.affinity import AffinityTerm, Terms, terms_of

SWEEP_AT = 64
"""Carried terms from which those are looked for that no placed pod carries any more."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of InterPodAffinity."""

    hard_pod_affinity_weight: int = 1
    """Score weight of required affinity terms that placed pods have towards the pod, 0 to 100."""


@dataclass(slots=True, eq=False)
class Carriers:
    """Placed pods that carry a term: how many per row, and how many in all."""

    column: Column
    total: int = 0


@dataclass(slots=True, eq=False)
class Relations:
    """A class's own terms with their counts, and the carried terms that mean its pods."""

    info: PodInfo
    terms: Terms
    together: PodCount | None
    """Pods that match all required affinity terms at once."""
    apart: tuple[tuple[AffinityTerm, PodCount], ...]
    liked: tuple[tuple[AffinityTerm, PodCount, int], ...]
    self_match: bool
    version: int = -1
    repelled_by: list[tuple[AffinityTerm, Carriers]] = field(default_factory=list)
    drawn_by: list[tuple[AffinityTerm, Carriers, int]] = field(default_factory=list)


class InterPodAffinity(Plugin[Relations]):
    """Filters by required terms and scores by preferred ones, of the pod and of those already placed."""

    name = "InterPodAffinity"
    rank = 210
    weight = 2
    scope = Scope.CLUSTER
    watches = (NAMESPACES.of(Namespace),)
    requeue_on = frozenset(
        {"nodes/add", "nodes/update", "pods/add", "pods/update", "pods/delete", "namespaces/add", "namespaces/update"}
    )

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._namespaces: dict[str, dict[str, str]] = {}
        self._repelling: dict[AffinityTerm, Carriers] = {}
        self._drawing: dict[tuple[AffinityTerm, int], Carriers] = {}
        self._version = 0
        self._sweep_at = SWEEP_AT
        self._terms: WeakKeyDictionary[PodClass, Terms] = WeakKeyDictionary()
        self._placed: dict[str, Terms] = {}

    def on_object(self, event: ObjectEvent) -> None:
        """A namespace's labels decide which namespaces a selector means."""
        name = event.key.name
        labels = dict(event.after.metadata.labels) if event.after is not None else None
        if labels == self._namespaces.get(name):
            return
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        self._terms.clear()
        self._resolve_placed()
        self.handle.invalidate()

    def tick(self, now: float) -> Iterable[Write]:
        """Let go of terms that no placed pod carries any more: jobs and roll-outs have terms of their own."""
        if len(self._repelling) + len(self._drawing) >= self._sweep_at:
            self._repelling = {term: carriers for term, carriers in self._repelling.items() if carriers.total}
            self._drawing = {weighed: carriers for weighed, carriers in self._drawing.items() if carriers.total}
            self._sweep_at = max(SWEEP_AT, 2 * (len(self._repelling) + len(self._drawing)))
            self._version += 1
        return ()

    def _resolve_placed(self) -> None:
        """Terms of placed pods mean the namespaces that their selectors choose now."""
        placed = self.handle.snapshot.pods
        for uid, before in list(self._placed.items()):
            placement = placed.get(uid)
            if placement is None:
                continue
            after = self._terms_of(placement.info)
            if after == before:
                continue
            for carriers in self._carriers(before):
                carriers.column.values[placement.row] -= 1
                carriers.total -= 1
            for carriers in self._carriers(after):
                carriers.column.values[placement.row] += 1
                carriers.total += 1
            self._placed[uid] = after

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod's terms on the row."""
        if info.pod.spec.affinity is None:
            return
        terms = self._placed[info.uid] = self._terms_of(info)
        for carriers in self._carriers(terms):
            carriers.column.values[row] += 1
            carriers.total += 1

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Take the pod's terms off the row."""
        terms = self._placed.pop(info.uid, None)
        for carriers in self._carriers(terms) if terms else ():
            carriers.column.values[row] -= 1
            carriers.total -= 1

    def prepare(self, info: PodInfo) -> Relations:
        """Register the counts that the class's own terms need."""
        terms = self._terms_of(info)
        snapshot = self.handle.snapshot
        selectors = tuple(term.selector for term in terms.affinity)
        return Relations(
            info,
            terms,
            _conjunction(snapshot, terms.affinity) if selectors else None,
            tuple((term, _count(snapshot, term)) for term in terms.anti_affinity),
            tuple((term, _count(snapshot, term), weight) for term, weight in terms.preferred),
            all(term.matches(info.namespace, info.labels) for term in terms.affinity),
        )

    def reasons(self, spec: Relations) -> tuple[Reason, ...]:
        """Own affinity, own anti-affinity, others' anti-affinity."""
        return (
            Reason("node(s) didn't match pod affinity rules", resolvable=False),
            Reason("node(s) didn't match pod anti-affinity rules"),
            Reason("node(s) didn't satisfy existing pods anti-affinity rules"),
        )

    def filter(self, attempt: Attempt, spec: Relations, rows: Rows) -> Bits | None:
        """One bit: the first rule that the row breaks. Stand-ins whose place the pod may take are no company."""
        self._learn(spec)
        if not spec.together and not spec.apart and not any(carriers.total for _, carriers in spec.repelled_by):
            return None
        snapshot = attempt.snapshot
        bits = np.zeros(snapshot.rows_used, dtype=np.int64)
        if spec.together is not None:
            bits[~_attracted(snapshot, spec, attempt.counted(spec.together))] = 1
        for term, count in spec.apart:
            bits[(bits == 0) & (_in_domain(snapshot, term, attempt.counted(count)) > 0)] = 2
        held = self._repelling_rows(attempt.holders)
        for term, carriers in spec.repelled_by:
            if carriers.total:
                values = carriers.column.values
                if term in held:
                    values = values.copy()
                    np.subtract.at(values, held[term], 1)
                bits[(bits == 0) & (_in_domain(snapshot, term, values) > 0)] = 4
        return bits[rows]

    def score(self, attempt: Attempt, spec: Relations, rows: Rows) -> Scores | None:
        """Sum over terms of weight times pods in the row's domain."""
        self._learn(spec)
        drawn = [(term, carriers.column, weight) for term, carriers, weight in spec.drawn_by if carriers.total]
        if not spec.liked and not drawn:
            return None
        total = np.zeros(attempt.snapshot.rows_used, dtype=np.int64)
        for term, count, weight in spec.liked:
            total += weight * _in_domain(attempt.snapshot, term, count.column.values)
        for term, column, weight in drawn:
            total += weight * _in_domain(attempt.snapshot, term, column.values)
        return total[rows]

    def normalize(self, attempt: Attempt, spec: Relations, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """100 * (score - min) / (max - min) over feasible rows; all equal gives 0."""
        chosen = scores[feasible]
        low, high = (int(chosen.min()), int(chosen.max())) if chosen.size else (0, 0)
        if high == low:
            return np.zeros_like(scores)
        share = MAX_SCORE * ((scores - low) / (high - low))
        return np.asarray(share, dtype=np.float64).astype(np.int64)

    def _terms_of(self, info: PodInfo) -> Terms:
        terms = self._terms.get(info.cls)
        if terms is None:
            terms = self._terms[info.cls] = terms_of(info.pod, self._namespaces)
        return terms

    def _carriers(self, terms: Terms) -> Iterable[Carriers]:
        """The tallies that a placed pod with `terms` belongs to."""
        hard: int = self.config.hard_pod_affinity_weight
        found = [self._tally(self._repelling, term) for term in terms.anti_affinity]
        found += [self._tally(self._drawing, weighed) for weighed in terms.preferred]
        if hard:
            found += [self._tally(self._drawing, (term, hard)) for term in terms.affinity]
        return found

    def _tally(self, tallies: dict[Any, Carriers], key: Any) -> Carriers:
        carriers = tallies.get(key)
        if carriers is None:
            carriers = tallies[key] = Carriers(self.handle.snapshot.column(np.int64, 0))
            self._version += 1
        return carriers

    def _repelling_rows(self, uids: Iterable[str]) -> dict[AffinityTerm, list[Row]]:
        """Rows of some placed pods by the required anti-affinity terms that they carry."""
        found: dict[AffinityTerm, list[Row]] = {}
        for uid in uids:
            terms, placement = self._placed.get(uid), self.handle.snapshot.pods.get(uid)
            if terms is None or placement is None:
                continue
            for term in terms.anti_affinity:
                found.setdefault(term, []).append(placement.row)
        return found

    def _learn(self, spec: Relations) -> None:
        """Look through carried terms again when there are new ones."""
        if spec.version == self._version:
            return
        spec.version = self._version
        namespace, labels = spec.info.namespace, spec.info.labels
        spec.repelled_by = [
            (term, carriers) for term, carriers in self._repelling.items() if term.matches(namespace, labels)
        ]
        spec.drawn_by = [
            (term, carriers, weight)
            for (term, weight), carriers in self._drawing.items()
            if term.matches(namespace, labels)
        ]


def _count(snapshot: Snapshot, term: AffinityTerm) -> PodCount:
    return pod_count(snapshot, term.namespaces, (term.selector,))


def _conjunction(snapshot: Snapshot, terms: tuple[AffinityTerm, ...]) -> PodCount:
    """Pods that every term means."""
    named = [term.namespaces for term in terms if term.namespaces is not None]
    namespaces = frozenset.intersection(*named) if named else None
    return pod_count(snapshot, namespaces, tuple(term.selector for term in terms))


def _in_domain(snapshot: Snapshot, term: AffinityTerm, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[rows_used]: sum of the values over each row's domain; 0 without the label."""
    rows = snapshot.all_rows
    ids = domain_ids(snapshot, term.topology_key)
    return domain_sums(ids, values[rows], snapshot.live[rows])[ids]


def _attracted(snapshot: Snapshot, spec: Relations, together: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[rows_used]: every term's domain holds a matching pod.

    The first pod of a group that wants to be together goes anywhere with the labels.
    """
    n = snapshot.rows_used
    labelled = np.ones(n, dtype=bool)
    filled = np.ones(n, dtype=bool)
    anywhere = False
    for term in spec.terms.affinity:
        inside = _in_domain(snapshot, term, together)
        labelled &= domain_ids(snapshot, term.topology_key) >= 0
        filled &= inside > 0
        anywhere = anywhere or bool((inside > 0).any())
    return labelled & (filled | (not anywhere and spec.self_match))
