"""Which pods may be moved, and which not yet."""

from typing import Any

import pytest

from controllers.descheduler.cluster_view import ANNOTATION_NODE, ANNOTATION_WORKLOAD
from controllers.descheduler.eviction_filter import ANNOTATION_EVICT, EvictionFilter, FilterArgs, Namespaces, Threshold
from controllers.descheduler.kinds import MIGRATION
from tests.descheduling import a_budget, a_cluster, a_node, a_pod, a_workload

NODES = [a_node("a"), a_node("b")]
WEB = [a_pod(f"w{number}") for number in range(5)]


def refusal(pod: Any, *others: Any, args: FilterArgs | None = None, **more: Any) -> tuple[str, bool]:
    cluster = a_cluster(NODES, [pod, *others], **{"workloads": [a_workload()], **more})
    found = EvictionFilter(cluster, args or FilterArgs()).refusal(pod)
    return (found.reason, found.passing) if found else ("", False)


def test_a_pod_of_a_workload_at_rest_may_be_moved() -> None:
    assert refusal(*WEB) == ("", False)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        pytest.param({"owner": ""}, "nothing would make it anew", id="bare"),
        pytest.param({"kind": "DaemonSet"}, "DaemonSet", id="daemon-set"),
        pytest.param({"kind": "Node"}, "static", id="static"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "x"}}, "static", id="mirror"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "going already", id="terminating"),
        pytest.param({"priority": 2_000_000_000}, "critical", id="system-critical"),
        pytest.param({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, "data on its node", id="empty-dir"),
        pytest.param({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "data on its", id="host-path"),
        pytest.param(
            {"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}}, "eviction cost", id="cost"
        ),
    ],
)
def test_pods_that_are_never_moved(changes: dict[str, Any], word: str) -> None:
    reason, passing = refusal(a_pod("p", **changes), *WEB[1:])
    assert word in reason
    assert not passing


@pytest.mark.parametrize(
    ("args", "changes"),
    [
        pytest.param(FilterArgs(namespaces=Namespaces(exclude=["shop"])), {}, id="namespace"),
        pytest.param(FilterArgs(priority_threshold=Threshold(value=100)), {"priority": 100}, id="priority"),
        pytest.param(
            FilterArgs(ignore_pvc_pods=True),
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
            id="claims",
        ),
        pytest.param(FilterArgs(min_replicas=6), {}, id="min-replicas"),
    ],
)
def test_settings_leave_pods_alone(args: FilterArgs, changes: dict[str, Any]) -> None:
    assert refusal(a_pod("p", **changes), *WEB[1:], args=args)[0]
    assert not refusal(a_pod("p", **changes), *WEB[1:])[0]


def test_an_annotation_lets_a_bare_pod_pass_but_no_daemon() -> None:
    asked = {ANNOTATION_EVICT: "true"}
    assert not refusal(a_pod("p", owner="", annotations=asked))[0]
    assert refusal(a_pod("p", kind="DaemonSet", annotations=asked))[0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_workload_of_which_all_may_be_away_is_left_alone(replicas: int) -> None:
    pods = WEB[:replicas]
    args = FilterArgs(max_migrating_per_workload=replicas)
    assert "replicas" in refusal(*pods, args=args, workloads=[a_workload(replicas=replicas)])[0]
    gated = FilterArgs(max_migrating_per_workload=replicas, skip_eviction_gates=["ExpectedReplicas"])
    assert "replicas" not in refusal(*pods, args=gated, workloads=[a_workload(replicas=replicas)])[0]


def test_budgets_hold_and_two_of_them_forbid() -> None:
    pod = a_pod("p", labels={"app": "web"})
    assert refusal(pod, *WEB[1:], budgets=[a_budget(1, app="web")]) == ("", False)
    reason, passing = refusal(pod, *WEB[1:], budgets=[a_budget(0, app="web")])
    assert ("allows none" in reason, passing) == (True, True)
    assert "2 disruption budgets" in refusal(pod, *WEB[1:], budgets=[a_budget(1, app="web"), a_budget(2, app="web")])[0]


def test_a_workload_that_is_not_at_rest_waits() -> None:
    reason, passing = refusal(*WEB, workloads=[a_workload(generation=2)])
    assert ("has not seen" in reason, passing) == (True, True)
    reason, passing = refusal(*WEB[:4], a_pod("w4", ready=False))
    assert ("1 pods that are not ready" in reason, passing) == (True, True)
    assert not refusal(a_pod("w0", ready=False), *WEB[1:])[0], "the one that is not ready may itself be moved"
    loose = FilterArgs(refuse_unrest=False)
    assert not refusal(*WEB[:4], a_pod("w4", ready=False), args=loose)[0]


def test_pods_that_kruise_updates_in_place_or_runs_on_each_node_stay() -> None:
    label = "lifecycle.apps.kruise.io/state"
    reason, passing = refusal(a_pod("w0", labels={label: "PreparingUpdate"}), *WEB[1:])
    assert ("in state PreparingUpdate" in reason, passing) == (True, True)
    assert not refusal(a_pod("w0", labels={label: "Normal"}), *WEB[1:])[0]
    assert "belongs to its node" in refusal(a_pod("w0", kind="BroadcastJob"), *WEB[1:])[0]


def a_job(pod: str, phase: str = "Running", **more: Any) -> Any:
    import msgspec

    document = {
        "metadata": {"name": f"job-{pod}", "uid": f"uid-job-{pod}", "resourceVersion": "1", **more},
        "spec": {"podRef": {"namespace": "shop", "name": pod, "uid": f"uid-{pod}"}, "mode": "ReservationFirst"},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, MIGRATION.model)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        pytest.param(FilterArgs(max_migrating_per_node=1), "of node a", id="node"),
        pytest.param(FilterArgs(max_migrating_per_namespace=1), "namespace shop", id="namespace"),
        pytest.param(FilterArgs(max_migrating_globally=1), "1 pods are moving", id="all"),
    ],
)
def test_moves_under_way_count(args: FilterArgs, word: str) -> None:
    other = a_pod("other", owner="db")
    reason, passing = refusal(*WEB, other, args=args, jobs=[a_job("other")])
    assert (word in reason, passing) == (True, True)
    assert not refusal(*WEB, other, args=args, jobs=[a_job("other", phase="Failed")])[0]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        pytest.param(FilterArgs(max_migrating_per_node=1), "1 pods of node a", id="node"),
        pytest.param(FilterArgs(max_migrating_per_namespace=1), "namespace shop", id="namespace"),
        pytest.param(FilterArgs(max_migrating_globally=1), "1 pods are moving", id="all"),
        pytest.param(FilterArgs(max_migrating_per_workload=1), "1 pods of", id="workload"),
    ],
)
def test_moves_count_until_the_successor_is_ready(args: FilterArgs, word: str) -> None:
    gone = a_job("gone", annotations={ANNOTATION_WORKLOAD: "uid-web", ANNOTATION_NODE: "a"})
    reason, passing = refusal(*WEB, args=args, jobs=[gone])
    assert (word in reason, passing) == (True, True)
    assert not refusal(*WEB, args=args, jobs=[a_job("gone", phase="Succeeded")])[0]
    assert not refusal(*WEB, args=args, jobs=[a_job("gone", phase="Pending")])[0]


def test_two_of_five_pods_of_a_workload_move_at_once() -> None:
    loose = FilterArgs(max_migrating_per_node=None)
    assert not refusal(*WEB, args=loose, jobs=[a_job("w1")])[0]
    assert "2 pods of" in refusal(*WEB, args=loose, jobs=[a_job("w1"), a_job("w2")])[0]
