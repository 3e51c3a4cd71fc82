"""NodeMetrics: created with their nodes, with what their agents are to report."""

import json
from typing import Any

import pytest

from api.crds import NodeMetric
from api.crds.node_metric import NodeMetricSpec
from api.kube.meta import ObjectMeta
from cluster import NODES, Key
from cluster.twin import Twin
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, ConfigMap, Node, NodeMeta
from controllers.plans.node_metric import NodeMetrics
from controllers.runtime.writes import Verb
from controllers.slo.colocation import DEFAULTS, collect_policy
from tests.managed import CONFIG, built, running, view_of
from tests.waiting import wait_for


def a_node(name: str, labels: dict[str, str] | None = None) -> Node:
    return Node(metadata=NodeMeta(name=name, labels=labels or {}))


def a_metric(name: str, policy: Any = None) -> NodeMetric:
    return NodeMetric(
        metadata=ObjectMeta(name=name, resource_version="7"), spec=NodeMetricSpec(metric_collect_policy=policy)
    )


def config(**colocation: Any) -> ConfigMap:
    meta = ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace)
    return ConfigMap(metadata=meta, data={"colocation-config": json.dumps(colocation)})


def test_a_node_without_one_gets_one_with_the_defaults() -> None:
    controller = built(NodeMetrics)
    (write,) = controller.plan(view_of(controller, {NODE: [a_node("n1")]}), 0.0).writes
    assert (write.verb, write.key) == (Verb.CREATE, Key("", "n1"))
    policy = write.body.spec.metric_collect_policy
    assert (policy.aggregate_duration_seconds, policy.report_interval_seconds) == (300, 60)
    assert policy.node_aggregate_policy.durations == ["5m", "10m", "30m"]
    assert policy.node_memory_collect_policy == "usageWithoutPageCache"


@pytest.mark.parametrize(
    ("colocation", "seconds"),
    [
        pytest.param({"enable": True, "metricReportIntervalSeconds": 20}, 20, id="enabled"),
        pytest.param({"enable": False, "metricReportIntervalSeconds": 20}, 60, id="disabled"),
        pytest.param(
            {
                "enable": True,
                "metricReportIntervalSeconds": 20,
                "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "x"}}, "metricReportIntervalSeconds": 30}],
            },
            30,
            id="node-entry",
        ),
    ],
)
def test_the_policy_is_that_of_the_nodes_colocation_strategy(colocation: dict[str, Any], seconds: int) -> None:
    controller = built(NodeMetrics)
    objects = {CONFIG_MAP: [config(**colocation)], NODE: [a_node("n1", {"pool": "x"})], NODE_METRIC: [a_metric("n1")]}
    (write,) = controller.plan(view_of(controller, objects), 0.0).writes
    assert (write.verb, write.version) == (Verb.PATCH, "7")
    assert write.body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == seconds


def test_what_is_as_wanted_gives_no_write() -> None:
    controller = built(NodeMetrics)
    objects = {NODE: [a_node("n1")], NODE_METRIC: [a_metric("n1", collect_policy(DEFAULTS))]}
    assert not controller.plan(view_of(controller, objects), 0.0).writes


def test_a_configuration_that_cannot_be_read_leaves_the_spec_and_warns() -> None:
    controller = built(NodeMetrics)
    broken = ConfigMap(metadata=config().metadata, data={"colocation-config": "{"})
    writes = controller.plan(
        view_of(controller, {CONFIG_MAP: [broken], NODE: [a_node("n1")], NODE_METRIC: [a_metric("n1")]}), 0.0
    )
    assert not writes.writes
    (warning,) = writes.warnings
    assert (warning.reason, warning.type) == ("ColocationCfgUnmarshalFailed", "Warning")
    assert warning.regarding.name == CONFIG.name


def test_one_whose_node_is_gone_is_deleted() -> None:
    controller = built(NodeMetrics)
    (write,) = controller.plan(view_of(controller, {NODE_METRIC: [a_metric("n1")]}), 0.0).writes
    assert (write.verb, write.version) == (Verb.DELETE, "7")


def test_it_says_where_the_policy_comes_from() -> None:
    controller = built(NodeMetrics)
    view = view_of(controller, {NODE: [a_node("n1")]})
    (line,) = controller.explain(view, "nodemetrics.slo.koordinator.sh", Key("", "n1"), 0.0)
    assert "the cluster strategy" in line


def test_against_a_server_nodes_and_reports_are_left_alone() -> None:
    with Twin() as twin:
        twin.serve(NODE_METRIC)
        twin.load(NODES, [{"metadata": {"name": "n1"}}])
        with running(twin, {"node_metric": built(NodeMetrics)}):
            wait_for(lambda: Key("", "n1") in twin.objects(NODE_METRIC))
            with twin.client() as client:
                client.delete(NODES, Key("", "n1"))
            wait_for(lambda: not twin.objects(NODE_METRIC))
