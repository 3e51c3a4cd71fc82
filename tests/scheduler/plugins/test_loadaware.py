"""LoadAwareScheduling in an engine: thresholds, expiry, estimates of placed pods, scores."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import NodeMetric
from api.kube.times import rfc3339
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.load.node import used
from scheduler.load.table import Slot
from scheduler.plugins.loadaware import NODE_METRICS, LoadAware
from scheduler.simulated_placement import simulate
from tests.schedobjects import drain, engine, node, pod, rejected, totals

KINDS = {"loadaware": LoadAware}
BIG = {"cpu": "96", "memory": "512Gi"}
T0 = 1_700_000_000.0


def heavy(name: str, **fields: Any) -> Any:
    amounts = {"cpu": "16", "memory": "32Gi"}
    return pod(name, container={"resources": {"requests": amounts, "limits": amounts}}, **fields)


def metric(name: str, cpu: str, memory: str, *, at: float | None = T0, **extra: Any) -> NodeMetric:
    usage = {"resources": {"cpu": cpu, "memory": memory}}
    status: dict[str, Any] = {"nodeMetric": {"nodeUsage": usage, **extra.get("node", {})}}
    status |= {"updateTime": rfc3339(at)} if at is not None else {}
    status |= {"podsMetric": extra.get("pods", [])}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, NodeMetric)


def report(made: Engine, *metrics: NodeMetric, now: float = T0) -> Engine:
    made.tick(now)
    for each in metrics:
        key = Key("", each.metadata.name)
        made.on_object(ObjectEvent(NODE_METRICS, Action.UPDATE, key, None, each), now)
    return made


def of(made: Engine) -> LoadAware:
    plugin = made.plugins["LoadAwareScheduling"]
    assert isinstance(plugin, LoadAware)
    return plugin


def cluster(*metrics: NodeMetric, nodes: tuple[str, ...] = ("a",), **config: Any) -> Engine:
    made = engine([node(name, allocatable=BIG) for name in nodes], kinds=KINDS, plugins={"loadaware": config})
    return report(made, *metrics)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, {"idle": 90, "loaded": 72, "silent": 0}, id="plain"),
        pytest.param(
            {"resource_weights": {"cpu": 1, "memory": 1}, "dominant_resource_weight": 1},
            {"idle": (85 + 95 + 85) // 3, "loaded": 65, "silent": 0},
            id="dominant",
        ),
        pytest.param(
            {"resource_weights": {"memory": 1}, "dominant_resource_weight": 1},
            {"idle": 95, "loaded": 93, "silent": 0},
            id="the dominant one is among those weighed",
        ),
        pytest.param(
            {"resource_weights": {}, "dominant_resource_weight": 1},
            {"idle": 0, "loaded": 0, "silent": 0},
            id="nothing is weighed",
        ),
    ],
)
def test_scores(config: dict[str, Any], expected: dict[str, int]) -> None:
    made = cluster(
        metric("idle", "0", "0"), metric("loaded", "32", "10Gi"), nodes=("idle", "loaded", "silent"), **config
    )
    assert totals(made, heavy("p")) == expected


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        pytest.param("49", "0", [], id="65.2 percent rounds to 65"),
        pytest.param("50", "0", ["node(s) cpu usage exceed threshold"], id="66.25 percent"),
        pytest.param("0", "470Gi", ["node(s) memory usage exceed threshold"], id="memory"),
        pytest.param(
            "90",
            "500Gi",
            ["node(s) cpu usage exceed threshold", "node(s) memory usage exceed threshold"],
            id="both",
        ),
    ],
)
def test_thresholds(cpu: str, memory: str, expected: list[str]) -> None:
    assert rejected(cluster(metric("a", cpu, memory)), heavy("p")) == {"a": expected}


def test_daemon_pods_pass() -> None:
    made = cluster(metric("a", "90", "0"))
    assert rejected(made, heavy("p", owner={"kind": "DaemonSet", "name": "d", "uid": "d"})) == {"a": []}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, [], id="an outage of agents closes nothing"),
        pytest.param(
            {"enable_schedule_when_node_metrics_expired": False}, ["node(s) with an expired NodeMetric"], id="rejected"
        ),
        pytest.param({"enable_schedule_when_node_metrics_expired": True}, [], id="let through"),
        pytest.param(
            {"filter_expired_node_metrics": False}, ["node(s) cpu usage exceed threshold"], id="age does not matter"
        ),
        pytest.param({"usage_thresholds": {}}, [], id="no thresholds"),
    ],
)
def test_expiry(config: dict[str, Any], expected: list[str]) -> None:
    made = cluster(metric("a", "90", "0"), **config)
    made.tick(T0 + 180)
    assert rejected(made, heavy("p")) == {"a": expected}


def test_the_defaults_close_no_node_for_want_of_a_recent_report() -> None:
    """With every plugin and no setting: reports that are missing, empty or old keep no pod away, a fresh one does."""
    names = ("silent", "empty", "idle-then-silent", "hot-then-silent", "hot")
    made = engine([node(name, allocatable=BIG) for name in names])
    empty = msgspec.convert({"metadata": {"name": "empty"}}, NodeMetric)
    report(made, metric("idle-then-silent", "0", "0"), metric("hot-then-silent", "90", "0"), empty)
    report(made, metric("hot", "90", "0", at=T0 + 180), now=T0 + 180)
    assert rejected(made, heavy("p")) == {name: [] for name in names} | {"hot": ["node(s) cpu usage exceed threshold"]}
    made.on_node(Action.DELETE, node("idle-then-silent"), T0 + 180)
    made.on_pod(Action.ADD, heavy("p"), T0 + 180)
    assert drain(made, T0 + 180)["p"] in ("silent", "empty", "hot-then-silent")


def test_a_report_that_comes_late_opens_the_node_again() -> None:
    made = cluster(metric("a", "0", "0"), enable_schedule_when_node_metrics_expired=False)
    candidate = heavy("p")
    made.tick(T0 + 500)
    assert rejected(made, candidate) == {"a": ["node(s) with an expired NodeMetric"]}
    report(made, metric("a", "0", "0", at=T0 + 500), now=T0 + 500)
    assert rejected(made, candidate) == {"a": []}


def test_a_node_may_have_thresholds_of_its_own() -> None:
    strict = {"scheduling.koordinator.sh/usage-thresholds": json.dumps({"usageThresholds": {"cpu": 10}})}
    made = engine([node("a", allocatable=BIG, annotations=strict)], kinds=KINDS)
    report(made, metric("a", "0", "0"))
    assert rejected(made, heavy("p")) == {"a": ["node(s) cpu usage exceed threshold"]}


def test_percentiles_have_their_own_reason() -> None:
    peaks = {"aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "80"}}}}]}
    aggregated = {"usage_thresholds": {"cpu": 70}, "usage_aggregation_type": "p95", "usage_aggregated_seconds": 300}
    made = cluster(metric("a", "1", "0", node=peaks), aggregated=aggregated)
    assert rejected(made, heavy("p")) == {"a": ["node(s) cpu aggregated usage exceed threshold"]}


def test_prod_pods_are_judged_by_prod_usage() -> None:
    made = cluster(metric("a", "90", "0"), prod_usage_thresholds={"cpu": 55})
    assert rejected(made, heavy("prod", priority=9500)) == {"a": []}
    assert rejected(made, heavy("batch", priority=5500)) == {"a": ["node(s) cpu usage exceed threshold"]}


def test_pods_just_placed_count_by_estimate() -> None:
    made = cluster(metric("a", "0", "0"), metric("b", "0", "0"), nodes=("a", "b"))
    for number in range(8):
        made.on_pod(Action.ADD, heavy(f"p{number}"), T0)
    placed = drain(made, T0)
    assert sorted(placed.values()) == ["a"] * 4 + ["b"] * 4
    describe = of(made).describe("a")
    assert describe["used"]["filter"]["cpu"] == 4 * 13_600
    made.on_pod(Action.ADD, heavy("one more"), T0)
    made.schedule_one(T0)
    assert made.outcomes[-1].message.count("cpu usage exceed threshold") == 1


def test_a_deleted_pod_leaves_no_ghost_load() -> None:
    made = cluster(metric("a", "0", "0"))
    made.on_pod(Action.ADD, heavy("p"), T0)
    drain(made, T0)
    bound = heavy("p", nodeName="a")
    made.on_pod(Action.UPDATE, bound, T0)
    assert of(made).describe("a")["used"]["score"]["cpu"] == 13_600
    made.on_pod(Action.DELETE, bound, T0)
    assert of(made).describe("a")["used"]["score"]["cpu"] == 0


events = st.one_of(
    st.tuples(st.just("place"), st.integers(0, 5), st.sampled_from(["a", "b"])),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("report"), st.sampled_from(["a", "b"]), st.integers(0, 90), st.sets(st.integers(0, 5))),
    st.tuples(st.just("wait"), st.integers(1, 100)),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(events, max_size=25))
def test_columns_agree_with_a_recount_after_any_history(history: list[tuple[Any, ...]]) -> None:
    made = cluster(nodes=("a", "b"), prod_usage_thresholds={"cpu": 50}, score_according_prod_usage=True)
    now = T0
    for event in history:
        match event:
            case ("place", number, name):
                placed = heavy(f"p{number}", nodeName=name, priority=9500, creation_timestamp=rfc3339(now))
                made.on_pod(Action.UPDATE, placed, now)
            case ("delete", number):
                made.on_pod(Action.DELETE, heavy(f"p{number}"), now)
            case ("report", name, cpu, seen):
                figures = {"resources": {"cpu": "2", "memory": "1Gi"}}
                pods = [
                    {"name": f"p{n}", "namespace": "default", "podUsage": figures, "priority": "koord-prod"}
                    for n in seen
                ]
                report(made, metric(name, str(cpu), "1Gi", at=now, pods=pods), now=now)
            case ("wait", seconds):
                now += seconds
    table = of(made)._table
    for row, state in table.rows.items():
        for slot in Slot:
            columns = [int(column[row]) for column in table.used(slot, slice(None))]
            expected = used(state.views[slot], state.load, state.assigned.values()) if state.load else {}
            assert columns == [expected.get(name, 0) for name in table.resources]


def test_a_simulation_keeps_the_time_at_which_a_pod_was_placed() -> None:
    """Placed within the reported interval, the pod counts by its estimate, asked about or not."""
    made = cluster(metric("a", "1", "1Gi"))
    made.on_pod(Action.ADD, heavy("p"), T0 + 5.0)
    assert drain(made, T0 + 5.0) == {"p": "a"}
    figures = {"namespace": "default", "name": "p", "podUsage": {"resources": {"cpu": "100m", "memory": "1Mi"}}}
    report(made, metric("a", "1", "1Gi", at=T0 + 8.0, pods=[figures]), now=T0 + 8.0)
    before = of(made).describe("a")
    answer = simulate(made, PlacementRequest([SimulatedPod(uid="uid-p"), SimulatedPod(pod=heavy("q"))]), T0 + 9.0)
    assert [placement.node for placement in answer.placements] == ["a", "a"]
    assert of(made).describe("a") == before
    assert before["used"]["filter"]["cpu"] > 10_000
