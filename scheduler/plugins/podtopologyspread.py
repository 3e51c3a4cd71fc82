"""PodTopologySpread: matching pods spread evenly over the domains of a node label.

Filter: matching pods in the node's domain, plus one if the pod matches itself, may exceed the emptiest domain
by at most `maxSkew`. Score: fewer matching pods in the domain is better, domains weighed by ln(count + 2).
"""

import math
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.meta import LabelSelector
from api.kube.objects import TopologySpreadConstraint
from api.kube.selectors import label_selector_matches
from api.protocol import LABEL_HOSTNAME, LABEL_ZONE
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podcounts import PodCount
from scheduler.cluster_state.podinfo import IDENTITY_LABELS, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cluster_state.topology import domain_ids, domain_sums, pod_count, with_label_keys
from scheduler.framework import MAX_SCORE, Attempt, Bits, Plugin, Reason, Scope, Scores
from scheduler.matching.nodematch import Wanted, required_rows, wanted_of
from scheduler.matching.taints import first_untolerated

OWNED_KINDS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Controllers whose pods spread by default."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of PodTopologySpread."""

    default_max_skew: dict[str, int] = msgspec.field(default_factory=lambda: {LABEL_HOSTNAME: 3, LABEL_ZONE: 5})
    """Skew by topology label that pods of a workload without constraints of their own would rather not exceed;
    empty switches the default off."""


IGNORED = -1
"""Raw score of rows that lack a topology label."""


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """One constraint with its count of matching pods."""

    spec: TopologySpreadConstraint
    count: PodCount
    self_match: int


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A class's constraints, and which nodes it considers."""

    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    wanted: Wanted
    info: PodInfo
    own: bool
    """False for default constraints, which nodes without the labels may break."""


class PodTopologySpread(Plugin[Spread]):
    """Filters by DoNotSchedule and scores by ScheduleAnyway constraints."""

    name = "PodTopologySpread"
    rank = 200
    weight = 2
    scope = Scope.CLUSTER
    requeue_on = frozenset({"nodes/add", "nodes/update", "nodes/delete", "pods/add", "pods/delete"})

    def prepare(self, info: PodInfo) -> Spread | None:
        """The pod's constraints, or the default ones of its workload; None when there are neither."""
        constraints = info.pod.spec.topology_spread_constraints or self._defaults(info)
        if not constraints:
            return None
        made = [(item, self._constraint(item, info)) for item in constraints]
        return Spread(
            tuple(constraint for item, constraint in made if item.when_unsatisfiable == "DoNotSchedule"),
            tuple(constraint for item, constraint in made if item.when_unsatisfiable == "ScheduleAnyway"),
            wanted_of(info),
            info,
            bool(info.pod.spec.topology_spread_constraints),
        )

    def reasons(self, spec: Spread) -> tuple[Reason, ...]:
        """Missing label first, then skew."""
        return (
            Reason(
                "node(s) didn't match pod topology spread constraints (missing required label)",
                resolvable=False,
            ),
            Reason("node(s) didn't match pod topology spread constraints"),
        )

    def filter(self, attempt: Attempt, spec: Spread, rows: Rows) -> Bits | None:
        """Bit 0 for a missing label, bit 1 for too much skew."""
        if not spec.hard:
            return None
        snapshot = attempt.snapshot
        missing = ~_has_labels(snapshot, spec.hard)
        skewed = np.zeros(snapshot.rows_used, dtype=bool)
        for constraint in spec.hard:
            counts = attempt.counted(constraint.count)[: snapshot.rows_used]
            skewed |= _too_skewed(snapshot, constraint, counts, _eligible(snapshot, spec, constraint) & ~missing)
        return np.where(missing, 1, np.where(skewed, 2, 0))[rows]

    def score(self, attempt: Attempt, spec: Spread, rows: Rows) -> Scores | None:
        """Weighted count of matching pods in the row's domains; IGNORED without a label."""
        if not spec.soft:
            return None
        snapshot = attempt.snapshot
        present = _has_labels(snapshot, spec.soft) if spec.own else np.ones(snapshot.rows_used, dtype=bool)
        feasible = attempt.memo.get(self.name)
        considered = present if feasible is None else present & feasible
        total = np.zeros(snapshot.rows_used, dtype=np.float64)
        for constraint in spec.soft:
            total += _crowding(snapshot, spec, constraint, considered)
        return np.where(present, np.floor(total + 0.5), IGNORED).astype(np.int64)[rows]

    def pre_score(self, attempt: Attempt, spec: Spread, feasible: NDArray[np.bool_]) -> None:
        """Only domains of feasible rows weigh."""
        attempt.memo[self.name] = feasible

    def normalize(self, attempt: Attempt, spec: Spread, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """100 * (max + min - score) / max over rows that have the labels."""
        counted = feasible & (scores != IGNORED)
        if not counted.any():
            return np.zeros_like(scores)
        low, high = int(scores[counted].min()), int(scores[counted].max())
        if high == 0:
            return np.where(scores == IGNORED, 0, MAX_SCORE)
        return np.where(scores == IGNORED, 0, MAX_SCORE * (high + low - scores) // high)

    def _defaults(self, info: PodInfo) -> list[TopologySpreadConstraint]:
        """Soft constraints over the pods of the same workload: those with the same labels."""
        owner = info.pod.metadata.controlled_by
        labels = {key: text for key, text in info.labels.items() if key not in IDENTITY_LABELS}
        config: Config = self.config
        if owner is None or owner.kind not in OWNED_KINDS or not labels:
            return []
        return [
            TopologySpreadConstraint(
                topology_key=key,
                max_skew=skew,
                when_unsatisfiable="ScheduleAnyway",
                label_selector=LabelSelector(match_labels=labels),
            )
            for key, skew in config.default_max_skew.items()
        ]

    def _constraint(self, item: TopologySpreadConstraint, info: PodInfo) -> Constraint:
        selector = with_label_keys(item.label_selector, info.labels, item.match_label_keys)
        wanted = None if item.label_selector is None else selector
        count = pod_count(self.handle.snapshot, frozenset({info.namespace}), (wanted,), alive=True)
        return Constraint(item, count, int(label_selector_matches(wanted, info.labels)))


def _has_labels(snapshot: Snapshot, constraints: tuple[Constraint, ...]) -> NDArray[np.bool_]:
    present = np.ones(snapshot.rows_used, dtype=bool)
    for constraint in constraints:
        present &= domain_ids(snapshot, constraint.spec.topology_key) >= 0
    return present


def _eligible(snapshot: Snapshot, spec: Spread, constraint: Constraint) -> NDArray[np.bool_]:
    """bool[rows_used]: nodes whose pods and domains count, by the constraint's policies."""
    rows = snapshot.all_rows
    eligible = snapshot.live[rows].copy()
    bound = bool(spec.wanted.labels) or spec.wanted.terms is not None
    if bound and constraint.spec.node_affinity_policy != "Ignore":
        eligible &= required_rows(snapshot, spec.wanted, rows)
    if constraint.spec.node_taints_policy == "Honor":
        tolerations = spec.info.pod.spec.tolerations
        fine = [first_untolerated(taints, tolerations) is None for taints in snapshot.taint_sets]
        eligible &= np.array(fine, dtype=bool)[snapshot.taint_set[rows]]
    return eligible


def _too_skewed(
    snapshot: Snapshot, constraint: Constraint, counts: NDArray[np.int64], eligible: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    ids = domain_ids(snapshot, constraint.spec.topology_key)
    sums = domain_sums(ids, counts, eligible)
    present = domain_sums(ids, np.ones_like(counts), eligible) > 0
    domains = int(present.sum())
    least = int(sums[present].min()) if domains else 0
    if constraint.spec.min_domains is not None and domains < constraint.spec.min_domains:
        least = 0
    skew = sums[ids] + constraint.self_match - least
    return np.asarray(skew > constraint.spec.max_skew)


def _crowding(
    snapshot: Snapshot, spec: Spread, constraint: Constraint, considered: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """count * ln(domains + 2) + maxSkew - 1 per row."""
    key = constraint.spec.topology_key
    ids = domain_ids(snapshot, key)
    counts = constraint.count.column.values[: snapshot.rows_used]
    if key == LABEL_HOSTNAME:
        domains, matching = int(considered.sum()), counts
    else:
        matching = domain_sums(ids, counts, _eligible(snapshot, spec, constraint))[ids]
        domains = int(np.count_nonzero(np.bincount(ids[considered & (ids >= 0)])))
    crowding = matching * math.log(domains + 2) + (constraint.spec.max_skew - 1)
    return crowding if spec.own else np.where(ids >= 0, crowding, 0.0)
