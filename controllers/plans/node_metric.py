"""One NodeMetric for each node, with what its agent is to measure and report."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from api.crds import NodeMetric
from api.crds.node_metric import MetricCollectPolicy, NodeMetricSpec
from api.kube.meta import ObjectMeta
from cluster.resources import Key, Resource
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, create, delete, kind_name, patch
from controllers.slo.colocation import DEFAULTS, collect_policy, of_node
from controllers.slo.config import COLOCATION, SloConfig
from controllers.slo.table import SloConfigs, config_of, fault_events


class NodeMetrics(Controller[ControllerSettings]):
    """Creates, updates and deletes NodeMetrics with their nodes."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_METRIC)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (SloConfigs,)

    def plan(self, view: View, now: float) -> Writes:
        """Return the NodeMetrics that are missing, differ or have no node."""
        config = config_of(view, self.config_map)
        nodes, metrics = view.objects(NODE), view.objects(NODE_METRIC)
        writes: list[Write] = []
        keys = sorted(nodes.keys() | metrics.keys()) if view.touched(CONFIG_MAP) else view.due(NODE, NODE_METRIC)
        for key in keys:
            node, metric = nodes.get(key), metrics.get(key)
            if node is not None:
                writes += _kept(config, node, metric)
            elif metric is not None:
                writes.append(delete(NODE_METRIC, metric, f"node {key.name} is gone"))
        return Writes(writes, fault_events(config, self.config_map))

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the origin of a NodeMetric's spec."""
        node = view.objects(NODE).get(Key("", key.name))
        if kind not in (kind_name(NODE_METRIC), kind_name(NODE)) or node is None:
            return ()
        config = config_of(view, self.config_map)
        layers = config.layers(COLOCATION)
        if layers is None:
            return [f"{COLOCATION} is not readable: the NodeMetric's spec stays as it is"]
        index = layers.entry_for(node.metadata.labels)
        policy = wanted_policy(config, node)
        return [f"metricCollectPolicy: {msgspec.json.encode(policy).decode()}, from {layers.source(index)}"]


def wanted_policy(config: SloConfig, node: Node) -> MetricCollectPolicy | None:
    """Return what a node is to report; None while the configuration cannot be read."""
    layers = config.layers(COLOCATION)
    if layers is None:
        return None
    labels = node.metadata.labels
    strategy, _ = of_node(layers.strategy(layers.entry_for(labels)), labels, node.metadata.annotations)
    return collect_policy(strategy)


def _kept(config: SloConfig, node: Node, metric: NodeMetric | None) -> list[Write]:
    policy = wanted_policy(config, node)
    if metric is None:
        spec = NodeMetricSpec(metric_collect_policy=policy or collect_policy(DEFAULTS))
        return [create(NODE_METRIC, NodeMetric(metadata=ObjectMeta(name=node.name), spec=spec), "the node has none")]
    if policy is None or metric.spec.metric_collect_policy == policy:
        return []
    body = {"spec": {"metricCollectPolicy": msgspec.to_builtins(policy)}}
    return [patch(NODE_METRIC, metric, body, f"{COLOCATION} says otherwise")]
