"""One NodeSLO for each node: thresholds, classes, bursts, system settings, host applications and extensions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from api.crds import NodeSLO
from api.kube.resources import QuantityError, parse_quantity
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import CONFIG_MAP, NODE, NODE_SLO, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, create, delete, kind_name, patch, reference
from controllers.slo.config import CPU_BURST, HOST_APPLICATIONS, QOS, SYSTEM, THRESHOLD, SloConfig
from controllers.slo.difference import difference
from controllers.slo.layers import Plain
from controllers.slo.table import SloConfigs, config_of, fault_events

ANNOTATION_NETWORK_BANDWIDTH = "node.koordinator.sh/network-bandwidth"
ANNOTATION_EXTENSIONS = "slo.koordinator.sh/managed-extensions"
"""Names of the extensions in a NodeSLO that came from the ConfigMap; others have another author and stay."""

FIELDS = {
    THRESHOLD: "resourceUsedThresholdWithBE",
    QOS: "resourceQOSStrategy",
    CPU_BURST: "cpuBurstStrategy",
    SYSTEM: "systemStrategy",
}
"""Field of the spec by part of the ConfigMap."""


class NodeSLOs(Controller[ControllerSettings]):
    """Creates, updates and deletes NodeSLOs with their nodes."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_SLO)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (SloConfigs,)

    def plan(self, view: View, now: float) -> Writes:
        """Return the NodeSLOs that are missing, differ or have no node."""
        config = config_of(view, self.config_map)
        nodes, slos = view.objects(NODE), view.objects(NODE_SLO)
        writes: list[Write] = []
        warnings = fault_events(config, self.config_map)
        keys = sorted(nodes.keys() | slos.keys()) if view.touched(CONFIG_MAP) else view.due(NODE, NODE_SLO)
        for key in keys:
            node, slo = nodes.get(key), slos.get(key)
            if node is not None:
                writes += _kept(config, node, slo)
                warnings += _bandwidth_fault(node)
            elif slo is not None:
                writes.append(delete(NODE_SLO, slo, f"node {key.name} is gone"))
        return Writes(writes, warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the layer that each part of a NodeSLO comes from."""
        node = view.objects(NODE).get(Key("", key.name))
        if kind not in (kind_name(NODE_SLO), kind_name(NODE)) or node is None:
            return ()
        config = config_of(view, self.config_map)
        labels = node.metadata.labels
        lines = []
        for part, field in {**FIELDS, HOST_APPLICATIONS: "hostApplications"}.items():
            layers = config.layers(part)
            if layers is None:
                lines.append(f"{field}: {part} is not readable, so it stays as it is")
                continue
            index = layers.entry_for(labels)
            text = msgspec.json.encode(layers.strategy(index)).decode()
            lines.append(f"{field}: {text}, from {layers.source(index)} of {part}")
        for name, layers in (config.extensions or {}).items():
            index = layers.entry_for(labels)
            text = msgspec.json.encode(layers.strategy(index)).decode()
            lines.append(f"extensions.{name}: {text}, from {layers.source(index)}")
        return lines


def wanted_spec(config: SloConfig, node: Node, current: Mapping[str, Any], managed: Sequence[str]) -> Plain:
    """Return the spec that a node is to have, over its `current` one; `managed` names extensions written before."""
    labels, spec = node.metadata.labels, dict(current)
    for part, field in FIELDS.items():
        layers = config.layers(part)
        if layers is not None:
            spec[field] = dict(layers.strategy(layers.entry_for(labels)))
    if config.layers(SYSTEM) is not None:
        bandwidth = _bandwidth(node)
        if bandwidth is not None:
            spec["systemStrategy"] = {**spec["systemStrategy"], "totalNetworkBandwidth": bandwidth}
    applications = config.layers(HOST_APPLICATIONS)
    if applications is not None:
        listed = applications.strategy(applications.entry_for(labels)).get("applications") or []
        spec.pop("hostApplications", None)
        if listed:
            spec["hostApplications"] = listed
    if config.extensions is not None:
        foreign = {name: value for name, value in (spec.pop("extensions", None) or {}).items() if name not in managed}
        ours = {name: layers.strategy(layers.entry_for(labels)) for name, layers in config.extensions.items()}
        if foreign or ours:
            spec["extensions"] = {**foreign, **ours}
    return spec


def _kept(config: SloConfig, node: Node, slo: NodeSLO | None) -> list[Write]:
    names = ",".join(sorted(config.extensions or {}))
    if slo is None:
        metadata: Plain = {"name": node.name}
        if names:
            metadata["annotations"] = {ANNOTATION_EXTENSIONS: names}
        spec = _known(wanted_spec(config, node, {}, ()))
        obj = {"metadata": metadata, "spec": spec}
        return [create(NODE_SLO, obj, "the node has none")]
    current: Plain = msgspec.to_builtins(slo.spec)
    before = slo.metadata.annotations.get(ANNOTATION_EXTENSIONS, "")
    wanted = _known(wanted_spec(config, node, current, before.split(",")))
    body: Plain = {}
    # Both sides as the struct writes them: a field that has its default is left out, and no difference.
    if wanted != current:
        body["spec"] = difference(current, wanted)
    if config.extensions is not None and names != before:
        body["metadata"] = {"annotations": {ANNOTATION_EXTENSIONS: names or None}}
    if not body:
        return []
    return [patch(NODE_SLO, slo, body, f"the configuration says otherwise: {', '.join(body.get('spec', body))}")]


def _known(spec: Plain) -> Plain:
    """Return a spec as the struct writes it, with the fields that the protocol has."""
    built: Plain = msgspec.to_builtins(msgspec.convert(spec, type(NodeSLO().spec)))
    return built


def _bandwidth(node: Node) -> str | None:
    text = node.metadata.annotations.get(ANNOTATION_NETWORK_BANDWIDTH)
    if text is None:
        return None
    try:
        return text if parse_quantity(text) >= 0 else None
    except QuantityError:
        return None


def _bandwidth_fault(node: Node) -> list[Event]:
    text = node.metadata.annotations.get(ANNOTATION_NETWORK_BANDWIDTH)
    if text is None or _bandwidth(node) is not None:
        return []
    note = f"annotation {ANNOTATION_NETWORK_BANDWIDTH} {text!r} is no amount in bits per second, and not used"
    return [Event(reference(NODE, node), "InvalidNodeAnnotation", note, "ReadNode", "Warning")]
