"""One NodeSLO for each node: thresholds, classes, bursts, system settings, host applications and extensions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from api.crds import NodeSLO
from api.kube.resources import QuantityError, parse_quantity
from api.kube.times import epoch_seconds, rfc3339
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.capacity.forecasts import ServiceForecasts
from controllers.capacity.pool_peaks import PoolOutlook, PoolPeaks, is_young
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, NODE_SLO, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, create, delete, kind_name, patch, reference
from controllers.slo.config import CPU_BURST, HOST_APPLICATIONS, QOS, SYSTEM, THRESHOLD, SloConfig
from controllers.slo.difference import difference
from controllers.slo.layers import Plain
from controllers.slo.pools import KEPT_SECONDS, POOLS, with_outlook
from controllers.slo.table import SloConfigs, config_of, fault_events
from controllers.slo.tightening import SUPPRESS, growth_percent, lowered

ANNOTATION_NETWORK_BANDWIDTH = "node.koordinator.sh/network-bandwidth"
ANNOTATION_EXTENSIONS = "slo.koordinator.sh/managed-extensions"
"""Names of the extensions in a NodeSLO that came from the ConfigMap; others have another author and stay."""

ANNOTATION_PEAKS_TIME = "slo.koordinator.sh/pool-peaks-time"
"""When the predicted peaks in a NodeSLO were last confirmed."""
CONFIRM_SECONDS = 86_400.0

FIELDS = {
    THRESHOLD: "resourceUsedThresholdWithBE",
    QOS: "resourceQOSStrategy",
    CPU_BURST: "cpuBurstStrategy",
    SYSTEM: "systemStrategy",
}
"""Field of the spec by part of the ConfigMap."""


class NodeSloSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.node_slo]`."""

    pool_outlook: bool = False
    """State in extension resourcePools what its pools are predicted to use in each hour of the day, and the workloads
    of pools that have a grade (docs/manager.md)."""
    tighten_ahead: bool = False
    """Lower the threshold of suppression by what services are forecast to use on top within `lead_seconds`."""
    lead_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 900.0
    """Time before the next hour from which its forecast counts."""
    most_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 20
    """By which a threshold is lowered at most."""


class NodeSLOs(Controller[NodeSloSettings]):
    """Creates, updates and deletes NodeSLOs with their nodes."""

    settings_type = NodeSloSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_SLO)

    @property
    def projections(self) -> tuple[type[AnyProjection], ...]:  # type: ignore[override]
        """Configurations, and forecasts where they are asked for: these cost memory for each pool or node."""
        pools = (PoolPeaks,) if self.settings.pool_outlook else ()
        return (SloConfigs, *pools, *((ServiceForecasts,) if self.settings.tighten_ahead else ()))

    def plan(self, view: View, now: float) -> Writes:
        """Return the NodeSLOs that are missing, differ or have no node."""
        config = config_of(view, self.config_map)
        nodes, slos = view.objects(NODE), view.objects(NODE_SLO)
        writes: list[Write] = []
        warnings = fault_events(config, self.config_map)
        due = (NODE, NODE_SLO, NODE_METRIC) if self.settings.pool_outlook else (NODE, NODE_SLO)
        keys = sorted(nodes.keys() | slos.keys()) if view.touched(CONFIG_MAP) else view.due(*due)
        outlooks = self._outlooks(view)
        ahead = view.of(ServiceForecasts) if self.settings.tighten_ahead else {}
        for key in keys:
            node, slo = nodes.get(key), slos.get(key)
            if node is not None:
                outlook = outlooks.get(key.name) if outlooks is not None else None
                growth = growth_percent(node.status.capacity, ahead.get(key.name), now, self.settings.lead_seconds)
                writes += _kept(config, node, slo, outlook, now, growth, self.settings.most_percent)
                warnings += _bandwidth_fault(node)
            elif slo is not None:
                writes.append(delete(NODE_SLO, slo, f"node {key.name} is gone"))
        return Writes(writes, warnings)

    def _outlooks(self, view: View) -> Mapping[str, PoolOutlook] | None:
        return view.of(PoolPeaks) if self.settings.pool_outlook else None

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the layer that each part of a NodeSLO comes from, and what is predicted of its pools."""
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
        lines += _tightening_lines(config, node, view.objects(NODE_SLO).get(Key("", key.name)))
        outlook = (self._outlooks(view) or {}).get(key.name)
        return lines if outlook is None else [*lines, *_pool_lines(outlook, view.objects(NODE_SLO).get(key))]


def _tightening_lines(config: SloConfig, node: Node, slo: NodeSLO | None) -> Iterator[str]:
    layers = config.layers(THRESHOLD)
    told = slo.spec.resource_used_threshold_with_be if slo is not None else None
    if layers is None or told is None or told.cpu_suppress_threshold_percent is None:
        return
    stated, configured = told.cpu_suppress_threshold_percent, layers.strategy(layers.entry_for(node.metadata.labels))
    if isinstance(configured.get(SUPPRESS), int) and stated < configured[SUPPRESS]:
        yield (
            f"{SUPPRESS}: {stated} = {configured[SUPPRESS]} of {THRESHOLD} - {configured[SUPPRESS] - stated}, percent"
            " of the CPUs that services were forecast to use on top when it was written (tighten_ahead)"
        )


def _pool_lines(outlook: PoolOutlook, slo: NodeSLO | None) -> Iterator[str]:
    stated = slo.metadata.annotations.get(ANNOTATION_PEAKS_TIME, "never") if slo is not None else "never"
    for pool, hours in outlook.hours.items():
        said = "too young to predict" if is_young(outlook, pool) else f"{outlook.peaks.get(pool)} millicores by hour"
        yield f"pool {pool}: {hours} hours learned, {said}; the NodeSLO's were confirmed {stated}"
    for pool, workloads in outlook.workloads.items():
        yield f"pool {pool}: by their profiles it has {', '.join(workloads) or 'no workloads'}"


def wanted_spec(
    config: SloConfig,
    node: Node,
    current: Mapping[str, Any],
    managed: Sequence[str],
    outlook: PoolOutlook | None = None,
    *,
    keep_peaks: bool = False,
) -> Plain:
    """Return the spec that a node is to have, over its `current` one; `managed` names extensions written before.

    Peaks in the current one stay with `keep_peaks` until there are others.
    """
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
        if outlook is not None and POOLS in ours:
            before = (current.get("extensions") or {}).get(POOLS) if POOLS in managed else None
            ours[POOLS] = with_outlook(ours[POOLS], before, outlook.peaks, outlook.workloads, keep=keep_peaks)
        if foreign or ours:
            spec["extensions"] = {**foreign, **ours}
    return spec


def _kept(
    config: SloConfig,
    node: Node,
    slo: NodeSLO | None,
    outlook: PoolOutlook | None = None,
    now: float = 0.0,
    growth: float = 0.0,
    most: int = 100,
) -> list[Write]:
    names = ",".join(sorted(config.extensions or {}))
    time = rfc3339(now) if outlook is not None and outlook.peaks else None
    if slo is None:
        metadata: Plain = {"name": node.name}
        annotations = {ANNOTATION_EXTENSIONS: names or None, ANNOTATION_PEAKS_TIME: time}
        if any(annotations.values()):
            metadata["annotations"] = {key: text for key, text in annotations.items() if text}
        spec = _known(_tightened(wanted_spec(config, node, {}, (), outlook), growth, {}, most))
        obj = {"metadata": metadata, "spec": spec}
        return [create(NODE_SLO, obj, "the node has none")]
    current: Plain = msgspec.to_builtins(slo.spec)
    before = slo.metadata.annotations.get(ANNOTATION_EXTENSIONS, "")
    confirmed = epoch_seconds(slo.metadata.annotations.get(ANNOTATION_PEAKS_TIME))
    # Ahead of the own clock by more than a day, it is a clock that is wrong.
    keeps = confirmed is not None and outlook is not None and -CONFIRM_SECONDS <= now - confirmed < KEPT_SECONDS
    made = wanted_spec(config, node, current, before.split(","), outlook, keep_peaks=keeps)
    # A part that cannot be read stays as it is, tightened or not.
    wanted = _known(made if config.layers(THRESHOLD) is None else _tightened(made, growth, current, most))
    body: Plain = {}
    # Both sides as the struct writes them: a field that has its default is left out, and no difference.
    if wanted != current:
        body["spec"] = difference(current, wanted)
    changed: Plain = {}
    if config.extensions is not None and names != before:
        changed[ANNOTATION_EXTENSIONS] = names or None
    if time is not None and (confirmed is None or abs(now - confirmed) >= CONFIRM_SECONDS):
        changed[ANNOTATION_PEAKS_TIME] = time
    elif confirmed is not None and time is None and not keeps:
        changed[ANNOTATION_PEAKS_TIME] = None
    if changed:
        body["metadata"] = {"annotations": changed}
    if not body:
        return []
    return [patch(NODE_SLO, slo, body, f"the configuration says otherwise: {', '.join(body.get('spec', body))}")]


def _tightened(spec: Plain, growth: float, current: Mapping[str, Any], most: int) -> Plain:
    field = FIELDS[THRESHOLD]
    if field not in spec:
        return spec
    return {**spec, field: lowered(spec[field], growth, (current.get(field) or {}).get(SUPPRESS), most)}


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
