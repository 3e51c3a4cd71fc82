"""The snapshot's sums, its change log, and trials that leave no trace."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cluster_state.podinfo import PodClasses
from scheduler.cluster_state.snapshot import Snapshot, snapshot_of
from tests.schedobjects import node, pod

CLASSES = PodClasses()


def rows_of(snapshot: Snapshot, rows: Any) -> set[int]:
    return set() if rows is None else set(np.arange(snapshot.rows_used)[rows].tolist())


def test_a_node_offers_its_allocatable_less_its_reservation() -> None:
    reservation = '{"resources":{"cpu":"1","memory":"1Gi"},"reservedCPUs":"0-1"}'
    snapshot = snapshot_of([node("a", annotations={"node.koordinator.sh/reservation": reservation})])
    cpu, memory = snapshot.columns["cpu"], snapshot.columns["memory"]
    assert snapshot.allocatable[0, cpu] == 2000
    assert snapshot.allocatable[0, memory] == 7 * 2**30


def test_reserved_cpus_only_takes_nothing_from_pods() -> None:
    reservation = '{"reservedCPUs":"0-1","applyPolicy":"ReservedCPUsOnly"}'
    snapshot = snapshot_of([node("a", annotations={"node.koordinator.sh/reservation": reservation})])
    assert snapshot.allocatable[0, snapshot.columns["cpu"]] == 4000


def test_a_heartbeat_changes_nothing() -> None:
    snapshot = snapshot_of([node("a")])
    before = snapshot.generation
    snapshot.set_node(node("a"))
    assert snapshot.generation == before


def test_only_rows_that_changed_are_named() -> None:
    snapshot = snapshot_of([node(f"n{index}") for index in range(10)])
    before = snapshot.generation
    snapshot.add_pod(CLASSES.info(pod("p", {"cpu": "1"})), 3)
    assert rows_of(snapshot, snapshot.changed_since(before)) == {3}
    snapshot.add_pod(CLASSES.info(pod("q", {"cpu": "1"})), 7)
    assert rows_of(snapshot, snapshot.changed_since(before)) == {3, 7}
    assert snapshot.changed_since(snapshot.generation) is None


def test_a_generation_too_long_ago_means_all_rows() -> None:
    snapshot = snapshot_of([node(f"n{index}") for index in range(4)])
    for _ in range(10_000):
        snapshot.touch(1)
    assert rows_of(snapshot, snapshot.changed_since(0)) == {0, 1, 2, 3}


def test_a_pod_is_counted_once_however_often_it_is_added() -> None:
    snapshot = snapshot_of([node("a"), node("b")])
    info = CLASSES.info(pod("p", {"cpu": "1"}))
    snapshot.add_pod(info, 0, assumed=True)
    snapshot.add_pod(CLASSES.info(pod("p", {"cpu": "1"})), 1)
    assert snapshot.requested[:2, snapshot.columns["cpu"]].tolist() == [0, 1000]
    assert list(snapshot.residents[1]) == [info.uid]


def test_a_removed_node_leaves_a_clean_row() -> None:
    snapshot = snapshot_of([node("a", labels={"zone": "x"}), node("b")])
    column = snapshot.column(np.int64, -7)
    column.values[0] = 5
    zone = snapshot.labels.column("zone")
    snapshot.add_pod(CLASSES.info(pod("p", {"cpu": "1"})), 0)
    snapshot.remove_node("a")
    assert snapshot.pods == {}
    assert column.values[0] == -7
    assert zone.ids[0] == -1
    assert not snapshot.live[0]
    assert snapshot.set_node(node("c")) == 0
    assert snapshot.requested[0].sum() == 0


def test_growing_keeps_columns_and_counts() -> None:
    snapshot = Snapshot(capacity=2, resources=4)
    column = snapshot.column(np.int64, 9)
    for index in range(5):
        snapshot.set_node(node(f"n{index}", allocatable={"example.com/x": "3"}))
    assert column.values[4] == 9
    assert snapshot.allocatable[4, snapshot.columns["example.com/x"]] == 3


def test_an_in_place_resize_is_charged_anew() -> None:
    snapshot = snapshot_of([node("a")])
    snapshot.add_pod(CLASSES.info(pod("p", {"cpu": "1"})), 0)
    snapshot.update_pod(CLASSES.info(pod("p", {"cpu": "2"})))
    assert snapshot.requested[0, snapshot.columns["cpu"]] == 2000


moves = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=30)


@settings(max_examples=60, deadline=None)
@given(moves, moves)
def test_a_trial_leaves_no_trace(before: list[tuple[int, int, bool]], tried: list[tuple[int, int, bool]]) -> None:
    snapshot = snapshot_of([node(f"n{index}") for index in range(4)])
    infos = [CLASSES.info(pod(f"p{index}", {"cpu": f"{index + 1}"})) for index in range(6)]
    for index, row, add in before:
        if add:
            snapshot.add_pod(infos[index], row)
        else:
            snapshot.remove_pod(infos[index].uid)
    requested = snapshot.requested.copy()
    places = {uid: (placement.row, placement.assumed) for uid, placement in snapshot.pods.items()}
    with snapshot.trial() as trial:
        for index, row, add in tried:
            if add:
                trial.add(infos[index], row)
            else:
                trial.remove(infos[index].uid)
    assert (snapshot.requested == requested).all()
    assert {uid: (placement.row, placement.assumed) for uid, placement in snapshot.pods.items()} == places


def test_a_trial_gives_pods_back_in_their_order() -> None:
    snapshot, classes = snapshot_of([node("n")]), PodClasses()
    for name in "abc":
        snapshot.add_pod(classes.info(pod(name)), 0)
    with snapshot.trial() as trial:
        trial.remove("uid-a")
        trial.add(classes.info(pod("b", {"cpu": "1"})), 0)
        trial.add(classes.info(pod("d")), 0)
    assert list(snapshot.residents[0]) == ["uid-a", "uid-b", "uid-c"]


class Faulty:
    """An observer that cannot take anything."""

    name = "Faulty"

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any) -> None:
            raise TypeError(f"{name} of {len(arguments)}")

        return fail


class Counting:
    """An observer that counts what it was told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.told.append(name)


def test_an_observer_that_fails_hides_nothing_from_the_others() -> None:
    snapshot, counting = snapshot_of([]), Counting()
    for observers in (snapshot.node_observers, snapshot.pod_observers):
        observers += [Faulty(), counting]
    row = snapshot.set_node(node("n"))
    snapshot.add_pod(PodClasses().info(pod("p", {"cpu": "1"})), row)
    snapshot.remove_pod("uid-p")
    snapshot.remove_node("n")
    assert counting.told == ["node_changed", "pod_added", "pod_removed", "node_removed"]
    assert [(fault.observer, fault.subject) for fault in snapshot.faults] == [
        ("Faulty", "n"),
        ("Faulty", "default/p"),
        ("Faulty", "default/p"),
        ("Faulty", "n"),
    ]


def test_requests_beyond_range_fit_nowhere_and_wrap_nothing() -> None:
    snapshot = snapshot_of([])
    row = snapshot.set_node(node("n", allocatable={"memory": "1e999999"}))
    classes = PodClasses()
    for index in range(1000):
        snapshot.add_pod(classes.info(pod(f"p{index}", {"cpu": "9E", "memory": "9E"})), row)
    column = snapshot.columns["memory"]
    assert (snapshot.requested[row] >= 0).all()
    assert snapshot.requested[row, column] > snapshot.allocatable[row, column]
    asked = snapshot.vector(classes.info(pod("q", {"memory": "1e99999"})))
    assert asked[column] > snapshot.allocatable[row, column]
