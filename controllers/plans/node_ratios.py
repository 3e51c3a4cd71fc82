"""CPU normalization and resource amplification of nodes: the annotations that scheduler, agent and webhook read."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from api.kube.numa import ANNOTATION_CPU_BASIC_INFO, CpuBasicInfo, NodeResourceTopology
from api.protocol import ANNOTATION_NODE_AMPLIFICATION, ANNOTATION_NODE_CPU_NORMALIZATION_RATIO
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import CONFIG_MAP, NODE, NODE_RESOURCE_TOPOLOGY, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Writes, kind_name, patch, reference
from controllers.slo.config import (
    AMPLIFICATION,
    CPU_NORMALIZATION,
    AmplificationStrategy,
    NormalizationStrategy,
    SloConfig,
)
from controllers.slo.layers import Layers
from controllers.slo.table import SloConfigs, config_of, fault_events

LABEL_NORMALIZATION = "node.koordinator.sh/cpu-normalization-enabled"
LEAST, MOST = 1.0, 5.0
DIFFERENCE = 0.01
"""Ratios that differ by no more are equal."""
OFF = "1.00"


class NodeRatios(Controller[ControllerSettings]):
    """Writes cpu-normalization-ratio and resource-amplification-ratio."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_RESOURCE_TOPOLOGY)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (SloConfigs,)

    def plan(self, view: View, now: float) -> Writes:
        """Return the nodes whose ratios differ from what the configuration and their CPUs give."""
        config = config_of(view, self.config_map)
        warnings = fault_events(config, self.config_map)
        nodes, topologies = view.objects(NODE), view.objects(NODE_RESOURCE_TOPOLOGY)
        writes = []
        keys = sorted(nodes) if view.touched(CONFIG_MAP) else view.due(NODE, NODE_RESOURCE_TOPOLOGY)
        for key in keys:
            node = nodes.get(key)
            if node is None:
                continue
            annotations, problems = wanted_annotations(config, node, topologies.get(key))
            note = "; ".join(problems)
            warnings += (
                [Event(reference(NODE, node), "InvalidNodeRatio", note, "ReadNode", "Warning")] if problems else []
            )
            changed = {name: text for name, text in annotations.items() if not _equal(node, name, text)}
            if changed:
                body = {"metadata": {"annotations": changed}}
                writes.append(patch(NODE, node, body, f"ratios of the node: {', '.join(sorted(changed))}"))
        return Writes(writes, warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return both ratios with the CPU model that they follow from."""
        node = view.objects(NODE).get(Key("", key.name))
        if kind != kind_name(NODE) or node is None:
            return ()
        topology = view.objects(NODE_RESOURCE_TOPOLOGY).get(Key("", key.name))
        annotations, problems = wanted_annotations(config_of(view, self.config_map), node, topology)
        info = _basic_info(topology)
        model = (
            f"{info.cpu_model}, hyper-threads {info.hyper_thread_enabled}, turbo {info.turbo_enabled}" if info else ""
        )
        lines = [f"cpu: {model or 'not reported'}"]
        lines += [f"{name}: {text if text is not None else 'none'}" for name, text in annotations.items()]
        return [*lines, *problems]


def wanted_annotations(
    config: SloConfig, node: Node, topology: NodeResourceTopology | None
) -> tuple[dict[str, str | None], list[str]]:
    """Return the annotations to have (None is no annotation) and what is wrong; what is wrong stays as it is."""
    problems: list[str] = []
    found: dict[str, str | None] = {}
    ratio: float | None = None
    layers = config.layers(CPU_NORMALIZATION)
    if layers is not None:
        ratio, problem = normalization(_strategy(layers, node, NormalizationStrategy), node, topology)
        if ratio is not None:
            # Nodes that never had a ratio need none that says 1.
            absent = ANNOTATION_NODE_CPU_NORMALIZATION_RATIO not in node.metadata.annotations
            if ratio != 1.0 or not absent:
                found[ANNOTATION_NODE_CPU_NORMALIZATION_RATIO] = f"{ratio:.2f}"
        problems += [problem] if problem else []
    layers = config.layers(AMPLIFICATION)
    if layers is not None:
        text, problem = amplification(_strategy(layers, node, AmplificationStrategy), ratio or 1.0)
        if not problem:
            found[ANNOTATION_NODE_AMPLIFICATION] = text
        problems += [problem] if problem else []
    return found, problems


def normalization(
    strategy: NormalizationStrategy, node: Node, topology: NodeResourceTopology | None
) -> tuple[float | None, str]:
    """Return the ratio of a node's CPU model; None with the reason where there is none."""
    label = node.metadata.labels.get(LABEL_NORMALIZATION, "").lower()
    enabled = label == "true" if label in ("true", "false") else strategy.enable
    if not enabled:
        return 1.0, ""
    info = _basic_info(topology)
    if info is None:
        return None, "CPU normalization is on and the node did not report its CPU model"
    model = strategy.ratio_model.get(info.cpu_model)
    ratio = strategy.default_ratio
    if model is not None:
        if info.hyper_thread_enabled and info.turbo_enabled:
            of_model = model.hyper_thread_turbo_enabled_ratio
        elif info.hyper_thread_enabled:
            of_model = model.hyper_thread_enabled_ratio
        elif info.turbo_enabled:
            of_model = model.turbo_enabled_ratio
        else:
            of_model = model.base_ratio
        ratio = ratio if of_model is None else of_model
    if ratio is None:
        return None, f"no CPU normalization ratio is configured for {info.cpu_model!r}"
    if not LEAST <= ratio <= MOST:
        return None, f"CPU normalization ratio {ratio} is not within {LEAST} and {MOST}"
    return ratio, ""


def amplification(strategy: AmplificationStrategy, normalization_ratio: float) -> tuple[str | None, str]:
    """Return the annotation's text; None for no amplification, with the reason where a ratio is wrong."""
    ratios = dict(strategy.resource_amplification_ratio) if strategy.enable else {}
    for name, ratio in ratios.items():
        if not ratio >= 1.0:
            return None, f"amplification of {name} by {ratio} is less than 1"
    cpu = ratios.pop("cpu", 1.0) * normalization_ratio
    if cpu > 1.0:
        ratios["cpu"] = cpu
    if not ratios:
        return None, ""
    return "{" + ",".join(f"{_quoted(name)}:{ratio:.2f}" for name, ratio in sorted(ratios.items())) + "}", ""


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _strategy(layers: Layers, node: Node, kind: Any) -> Any:
    return msgspec.convert(layers.strategy(layers.entry_for(node.metadata.labels)), kind)


def _basic_info(topology: NodeResourceTopology | None) -> CpuBasicInfo | None:
    text = topology.metadata.annotations.get(ANNOTATION_CPU_BASIC_INFO) if topology else None
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=CpuBasicInfo)
    except (msgspec.DecodeError, RecursionError):
        return None


def _equal(node: Node, name: str, text: str | None) -> bool:
    have = node.metadata.annotations.get(name)
    if have is None or text is None:
        return have is text
    return have == text or _close(_ratios(have), _ratios(text))


def _ratios(text: str) -> Mapping[str, float]:
    try:
        value = msgspec.json.decode(text, type=dict[str, float] | float)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {"": value}


def _close(left: Mapping[str, float], right: Mapping[str, float]) -> bool:
    if not left or left.keys() != right.keys():
        return False
    return all(abs(left[name] - right[name]) <= DIFFERENCE * 1.0001 for name in left)
