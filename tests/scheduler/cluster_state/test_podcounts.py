"""Counts per row follow pods that come, go and change their labels."""

from hypothesis import given, settings
from hypothesis import strategies as st

from api.kube.meta import LabelSelector
from scheduler.cluster_state.podcounts import RECENT_COUNTS
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.cluster_state.snapshot import snapshot_of
from scheduler.cluster_state.topology import pod_count
from tests.schedobjects import node, pod

WEB = LabelSelector(match_labels={"app": "web"})
steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.sampled_from(["web", "db", ""])), max_size=25)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 25))
def test_a_count_equals_a_recount_whenever_it_is_registered(moves: list[tuple[int, int, str]], when: int) -> None:
    classes = PodClasses()
    snapshot = snapshot_of([node(f"n{index}") for index in range(3)])
    for step, (name, row, app) in enumerate(moves):
        if step == when:
            pod_count(snapshot, frozenset({"default"}), (WEB,))
        if app:
            snapshot.add_pod(classes.info(pod(f"p{name}", labels={"app": app})), row)
        else:
            snapshot.remove_pod(f"uid-p{name}")
    count = pod_count(snapshot, frozenset({"default"}), (WEB,))
    expected = [sum(1 for info in snapshot.residents[row].values() if info.labels["app"] == "web") for row in range(3)]
    assert count.column.values[:3].tolist() == expected


def test_members_told_apart_by_identity_labels_count_by_their_own() -> None:
    classes = PodClasses()
    snapshot = snapshot_of([node("n0")])
    key = "apps.kubernetes.io/pod-index"
    first = pod_count(snapshot, None, (LabelSelector(match_labels={key: "0"}),))
    for index in range(3):
        snapshot.add_pod(classes.info(pod(f"p{index}", labels={key: str(index)})), 0)
    assert first.column.values[0] == 1


def test_a_count_that_nothing_asks_for_any_more_goes() -> None:
    snapshot = snapshot_of([node("n0")])
    columns = len(snapshot._columns)
    snapshot.add_pod(PodClasses().info(pod("p", labels={"app": "web"})), 0)
    pod_count(snapshot, None, (WEB,))
    for number in range(2 * RECENT_COUNTS):
        pod_count(snapshot, None, (LabelSelector(match_labels={"job": str(number)}),))
    # What placed pods count in stays.
    assert len(snapshot.counts) == RECENT_COUNTS + 1
    assert len(snapshot._columns) == columns + RECENT_COUNTS + 1
    snapshot.remove_pod("uid-p")
    assert len(snapshot.counts) == RECENT_COUNTS
