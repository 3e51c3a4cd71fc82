"""Reasons why a pod is pending: one sentence, counts per reason, and the reasons node by node."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cluster_state.snapshot import Snapshot
from scheduler.framework import Failure, Reason

NOMINATED = Reason("node(s) held for more important pods")
"""Against rows that pass every filter but only without the pods nominated to them."""


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """Reasons against one node."""

    node: str
    reasons: tuple[Reason, ...]


def decode(bits: int, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons whose bits are set."""
    return tuple(reason for index, reason in enumerate(reasons) if bits >> index & 1)


def by_node(failure: Failure, snapshot: Snapshot) -> list[NodeReasons]:
    """Every live node with its reasons, by name; empty reasons mean that the node itself would do."""
    listed = [
        NodeReasons(snapshot.names[row], decode(int(failure.bits[row]), failure.reasons))
        for row in range(min(snapshot.rows_used, failure.bits.shape[0]))
        if snapshot.live[row]
    ]
    return sorted(listed, key=lambda item: item.node)


def tally(failure: Failure, snapshot: Snapshot) -> list[tuple[Reason, int]]:
    """Each reason with the number of live nodes that it rejects, if any."""
    n = failure.bits.shape[0]
    live = snapshot.live[:n]
    hits = [int(((failure.bits >> index & 1).astype(bool) & live).sum()) for index in range(len(failure.reasons))]
    found = [(reason, count) for reason, count in zip(failure.reasons, hits, strict=True) if count]
    nominated = int(((failure.bits == 0) & live).sum()) if failure.reason is None else 0
    return [*found, (NOMINATED, nominated)] if nominated else found


def counts(failure: Failure, snapshot: Snapshot) -> Counter[str]:
    """Number of live nodes by the text of the reason that rejects them."""
    total: Counter[str] = Counter()
    for reason, count in tally(failure, snapshot):
        total[reason.text] += count
    return total


def rejecting_plugins(failure: Failure, snapshot: Snapshot) -> frozenset[str]:
    """The plugins that hold the pod back: those that rejected it as a whole or any node."""
    if failure.reason is not None:
        return frozenset({failure.reason.plugin})
    n = failure.bits.shape[0]
    live = snapshot.live[:n]
    return frozenset(
        reason.plugin
        for index, reason in enumerate(failure.reasons)
        if ((failure.bits >> index & 1).astype(bool) & live).any()
    )


def last_resort(node: str, despite: Iterable[Reason]) -> str:
    """The sentence about a pod on a node that is avoided."""
    return f"No other node takes the pod than {node}, which was avoided: {', '.join(each.text for each in despite)}."


def chosen_elsewhere(node: str, despite: Iterable[Reason]) -> str:
    """The sentence about a pod on a node that is avoided, where other nodes were not asked."""
    return f"Another scheduler chose {node}, which is avoided: {', '.join(each.text for each in despite)}."


def sentence(failure: Failure, snapshot: Snapshot, after: str = "") -> str:
    """The stock scheduler's sentence: `0/5 nodes are available: 3 Insufficient cpu, 2 ...`.

    `after` is what preemption adds.
    """
    opening = f"0/{snapshot.node_count} nodes are available:"
    if failure.reason is not None:
        reasons = f" {failure.reason.text}"
    else:
        reasons = " " + ", ".join(sorted(f"{count} {text}" for text, count in counts(failure, snapshot).items()))
    ending = f" {after}" if after else ""
    return f"{opening.rstrip(':') if not reasons.strip() else opening + reasons.rstrip()}.{ending}"
