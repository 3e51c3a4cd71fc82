"""NodeAffinity: node selectors and node affinity."""

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Plugin, Reason, Scores, scaled
from scheduler.matching.nodematch import Wanted, required_rows, term_rows, wanted_of


class NodeAffinity(Plugin[Wanted]):
    """Filters by required and scores by preferred node affinity."""

    name = "NodeAffinity"
    rank = 130
    weight = 2
    requeue_on = frozenset({"nodes/add", "nodes/update"})

    def prepare(self, info: PodInfo) -> Wanted | None:
        """None for pods that go anywhere."""
        wanted = wanted_of(info)
        return wanted if wanted.labels or wanted.terms is not None or wanted.preferred else None

    def reasons(self, spec: Wanted) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) didn't match Pod's node affinity/selector", resolvable=False),)

    def filter(self, attempt: Attempt, spec: Wanted, rows: Rows) -> Bits | None:
        """Rejects rows that do not match."""
        if not spec.labels and spec.terms is None:
            return None
        return (~required_rows(attempt.snapshot, spec, rows)).astype(np.int64)

    def score(self, attempt: Attempt, spec: Wanted, rows: Rows) -> Scores | None:
        """Sum of the weights of the preferred terms that match."""
        if not spec.preferred:
            return None
        total = np.zeros(attempt.snapshot.live[rows].shape[0], dtype=np.int64)
        for preferred in spec.preferred:
            if preferred.weight:
                total += preferred.weight * term_rows(attempt.snapshot, preferred.preference, rows)
        return total

    def normalize(self, attempt: Attempt, spec: Wanted, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """100 for the best match."""
        return scaled(scores, feasible)
