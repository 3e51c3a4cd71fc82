"""The sentence, the counts, and who holds a pod back."""

import numpy as np

from scheduler.cluster_state.snapshot import snapshot_of
from scheduler.explain.diagnosis import by_node, counts, rejecting_plugins, sentence
from scheduler.framework import Failure, Reason
from tests.schedobjects import node

CPU = Reason("Insufficient cpu", plugin="Fit")
MEMORY = Reason("Insufficient memory", plugin="Fit")
TAINT = Reason("node(s) had untolerated taint(s)", resolvable=False, plugin="Taints")
SNAPSHOT = snapshot_of([node(name) for name in "abcd"])


def failure(*bits: int) -> Failure:
    return Failure((CPU, MEMORY, TAINT), np.array(bits, dtype=np.int64))


def test_nodes_are_counted_once_per_reason() -> None:
    assert counts(failure(1, 3, 4, 4), SNAPSHOT) == {CPU.text: 2, MEMORY.text: 1, TAINT.text: 2}
    assert sentence(failure(1, 3, 4, 4), SNAPSHOT) == (
        "0/4 nodes are available: 1 Insufficient memory, 2 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    )


def test_a_reason_for_all_nodes_stands_alone() -> None:
    whole = Failure((), np.zeros(4, dtype=np.int64), Reason("quota exceeded", plugin="Quota"))
    assert sentence(whole, SNAPSHOT, "preemption: no.") == "0/4 nodes are available: quota exceeded. preemption: no."
    assert rejecting_plugins(whole, SNAPSHOT) == {"Quota"}


def test_rows_without_a_node_are_not_counted() -> None:
    smaller = snapshot_of([node(name) for name in "abcd"])
    smaller.remove_node("a")
    assert sentence(failure(1, 1, 1, 1), smaller) == "0/3 nodes are available: 3 Insufficient cpu."
    assert [item.node for item in by_node(failure(1, 1, 1, 1), smaller)] == ["b", "c", "d"]


def test_an_empty_cluster_is_said_plainly() -> None:
    empty = Failure((), np.zeros(0, dtype=np.int64))
    assert sentence(empty, snapshot_of([])) == "0/0 nodes are available."


def test_nodes_that_only_the_nominated_hold_are_said_so() -> None:
    assert "1 node(s) held for more important pods" in sentence(failure(1, 1, 1, 0), SNAPSHOT)


def test_only_reasons_that_removal_can_mend_are_resolvable() -> None:
    assert failure(1, 4, 5, 0).resolvable_rows(SNAPSHOT).tolist() == [0]
    assert rejecting_plugins(failure(1, 4, 0, 0), SNAPSHOT) == {"Fit", "Taints"}
