"""Details of an attempt that found no node, in the fields of Koordinator's ScheduleExplanation: nodes by reason."""

from collections.abc import Sequence
from heapq import nsmallest

import numpy as np

from api.crds.placement import NodeFailure
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.explain.diagnosis import NOMINATED, decode
from scheduler.framework import Failure, Reason

MAX_DETAILS = 64
"""Groups of nodes in one explanation; the largest stay."""
MAX_TEXT = 4096
"""Characters of a reason or message."""


def node_failures(failure: Failure, snapshot: Snapshot, max_nodes: int) -> list[NodeFailure]:
    """Group the live nodes by the reasons against them, in order of plugin, reason and whether preemption might help.

    Each group lists its first `max_nodes` nodes by name. A reason against the pod as a whole has no nodes.
    """
    if failure.reason is not None:
        return [_failure([failure.reason], [])]
    rows = np.flatnonzero(snapshot.live[: min(snapshot.rows_used, failure.bits.shape[0])])
    kinds, kind_of = np.unique(failure.bits[rows], return_inverse=True)
    largest = np.argsort(-np.bincount(kind_of), kind="stable")[:MAX_DETAILS]
    found = [
        _failure(
            decode(int(kinds[kind]), failure.reasons) or (NOMINATED,),
            nsmallest(max_nodes, (snapshot.names[row] for row in rows[kind_of == kind])),
        )
        for kind in largest.tolist()
    ]
    return sorted(found, key=lambda each: (each.failed_plugin, each.reason, not each.preempt_might_help))


def _failure(reasons: Sequence[Reason], nodes: list[str]) -> NodeFailure:
    return NodeFailure(
        failed_plugin=reasons[0].plugin,
        reason=", ".join(reason.text for reason in reasons)[:MAX_TEXT],
        preempt_might_help=all(reason.resolvable for reason in reasons),
        failed_nodes=nodes,
    )
