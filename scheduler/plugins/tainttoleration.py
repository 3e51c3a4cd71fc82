"""TaintToleration: taints repel pods that do not tolerate them; soft taints cost score.

Nodes with the same taints share an answer: tolerations are compared once per distinct set of taints.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Toleration
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.framework import Attempt, Bits, Plugin, Reason, Scores, scaled
from scheduler.matching.taints import first_untolerated, soft_untolerated


@dataclass(slots=True, eq=False)
class Tolerated:
    """A class's tolerations and what they mean for each taint set of the snapshot seen so far."""

    tolerations: list[Toleration]
    barred: list[int] = field(default_factory=list)
    """1 by taint set that the pod does not tolerate."""
    soft: list[int] = field(default_factory=list)
    """Untolerated soft taints by taint set."""

    def learn(self, snapshot: Snapshot) -> None:
        """Take in taint sets that appeared since the last call."""
        for taints in snapshot.taint_sets[len(self.barred) :]:
            self.barred.append(int(first_untolerated(taints, self.tolerations) is not None))
            self.soft.append(soft_untolerated(taints, self.tolerations))


class TaintToleration(Plugin[Tolerated]):
    """Filters by hard taints and scores by soft ones."""

    name = "TaintToleration"
    rank = 120
    weight = 3
    requeue_on = frozenset({"nodes/add", "nodes/update"})

    def prepare(self, info: PodInfo) -> Tolerated:
        """The class's tolerations."""
        return Tolerated(info.pod.spec.tolerations)

    def reasons(self, spec: Tolerated) -> tuple[Reason, ...]:
        """One reason for all taints."""
        return (Reason("node(s) had untolerated taint(s)", resolvable=False),)

    def filter(self, attempt: Attempt, spec: Tolerated, rows: Rows) -> Bits | None:
        """Rejects rows whose taint set holds a hard taint that is not tolerated."""
        spec.learn(attempt.snapshot)
        if not any(spec.barred):
            return None
        return np.array(spec.barred, dtype=np.int64)[attempt.snapshot.taint_set[rows]]

    def score(self, attempt: Attempt, spec: Tolerated, rows: Rows) -> Scores | None:
        """Counts soft taints; the fewer the better after `normalize`."""
        if not any(spec.soft):
            return None
        return np.array(spec.soft, dtype=np.int64)[attempt.snapshot.taint_set[rows]]

    def normalize(self, attempt: Attempt, spec: Tolerated, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """100 for no untolerated soft taint, 0 for the most."""
        return scaled(scores, feasible, reverse=True)
