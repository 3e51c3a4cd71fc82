"""The slo-controller ConfigMap as layers. A part that cannot be used keeps its previous state, and says why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from api.crds.definition import between
from api.crds.node_slo import (
    CPUBurstStrategy,
    HostApplication,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    SystemStrategy,
)
from api.kube.meta import LabelSelector, Wire
from controllers.slo.colocation import ColocationStrategy
from controllers.slo.layers import Layers, NodeEntry, Plain, overlay
from controllers.slo.pools import POOLS, refused_names
from controllers.slo.ranges import problems

COLOCATION = "colocation-config"
THRESHOLD = "resource-threshold-config"
QOS = "resource-qos-config"
CPU_BURST = "cpu-burst-config"
SYSTEM = "system-config"
HOST_APPLICATIONS = "host-application-config"
CPU_NORMALIZATION = "cpu-normalization-config"
AMPLIFICATION = "resource-amplification-config"
EXTENSIONS = "extensions-config"
"""Not Koordinator's: `{NAME: {clusterStrategy, nodeStrategies}}` for `extensions.NAME` of a NodeSLO."""

REASONS = {
    COLOCATION: "ColocationCfgUnmarshalFailed",
    THRESHOLD: "SLOCfgUnmarshalFailed",
    QOS: "SLOCfgUnmarshalFailed",
    CPU_BURST: "SLOCfgUnmarshalFailed",
    SYSTEM: "SLOCfgUnmarshalFailed",
    HOST_APPLICATIONS: "SLOCfgUnmarshalFailed",
    CPU_NORMALIZATION: "CPUNormalizationCfgUnmarshalFailed",
    AMPLIFICATION: "ResourceAmplificationCfgUnmarshalFailed",
    EXTENSIONS: "SLOCfgUnmarshalFailed",
}
"""Reason of the Event about each part that cannot be used."""

Ratio = Annotated[float, between(1, 5)]


class ModelRatio(Wire, frozen=True, kw_only=True):
    """Ratios of one CPU model."""

    base_ratio: Ratio | None = None
    hyper_thread_enabled_ratio: Ratio | None = None
    turbo_enabled_ratio: Ratio | None = None
    hyper_thread_turbo_enabled_ratio: Ratio | None = None


class NormalizationStrategy(Wire, frozen=True, kw_only=True):
    """CPU normalization: speed of a model as a multiple of the slowest."""

    enable: bool = False
    default_ratio: Ratio | None = None
    ratio_model: dict[str, ModelRatio] = {}


class AmplificationStrategy(Wire, frozen=True, kw_only=True):
    """Amplification of allocatable by resource name; no ratio is below 1."""

    enable: bool = False
    resource_amplification_ratio: dict[str, Annotated[float, between(1)]] = {}


class Applications(Wire, frozen=True, kw_only=True):
    """Host applications of a layer."""

    applications: list[HostApplication] = []


class Free(Wire, frozen=True, kw_only=True):
    """A part without a schema."""


DEFAULT_THRESHOLD: Plain = {
    "enable": False,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cpuset",
    "memoryEvictThresholdPercent": 70,
    "cpuEvictPolicy": "evictByRealLimit",
}
DEFAULT_CPU_BURST: Plain = {
    "policy": "none",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}
DEFAULT_SYSTEM: Plain = {"totalNetworkBandwidth": "0"}

Kind = type[msgspec.Struct]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a part is written: its struct, its defaults, and whether the cluster's strategy stands at the top."""

    kind: Kind
    defaults: Plain
    flat: bool
    entries: str


_SHAPES: dict[str, _Shape] = {
    COLOCATION: _Shape(ColocationStrategy, {}, True, "nodeConfigs"),
    THRESHOLD: _Shape(ResourceThresholdStrategy, DEFAULT_THRESHOLD, False, "nodeStrategies"),
    QOS: _Shape(ResourceQOSStrategy, {}, False, "nodeStrategies"),
    CPU_BURST: _Shape(CPUBurstStrategy, DEFAULT_CPU_BURST, False, "nodeStrategies"),
    SYSTEM: _Shape(SystemStrategy, DEFAULT_SYSTEM, False, "nodeStrategies"),
    HOST_APPLICATIONS: _Shape(Applications, {}, True, "nodeConfigs"),
    CPU_NORMALIZATION: _Shape(NormalizationStrategy, {}, True, "nodeConfigs"),
    AMPLIFICATION: _Shape(AmplificationStrategy, {}, True, "nodeConfigs"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of the ConfigMap that cannot be used."""

    part: str
    problem: str

    @property
    def reason(self) -> str:
        """Reason of the Event about it."""
        return REASONS[self.part]


@dataclass(frozen=True, slots=True)
class SloConfig:
    """The parts in use; a part that is None was never readable in this process: what it leads to stays as it is."""

    parts: Mapping[str, Layers | None]
    extensions: Mapping[str, Layers] | None = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def layers(self, part: str) -> Layers | None:
        """Return a part."""
        return self.parts[part]


DEFAULT = SloConfig({part: Layers(dict(shape.defaults)) for part, shape in _SHAPES.items()})


def parse_config(data: Mapping[str, str], previous: SloConfig | None = None) -> SloConfig:
    """Return the configuration that a ConfigMap's texts give; never raises.

    A key that is absent has the defaults. One that cannot be read or breaks a rule keeps `previous`, None without one.
    """
    parts: dict[str, Layers | None] = {}
    faults: list[Fault] = []
    for part, shape in _SHAPES.items():
        layers, wrong = read_part(part, data.get(part, ""), shape)
        faults += [Fault(part, problem) for problem in wrong]
        parts[part] = layers if layers is not None else previous.parts[part] if previous else None
    extensions, wrong = _read_extensions(data.get(EXTENSIONS, ""))
    faults += [Fault(EXTENSIONS, problem) for problem in wrong]
    if extensions is None and previous is not None:
        extensions = dict(previous.extensions) if previous.extensions is not None else None
    return SloConfig(parts, extensions, tuple(faults))


def read_part(part: str, text: str, shape: _Shape | None = None) -> tuple[Layers | None, list[str]]:
    """Return the layers in a part's text, or None with what is wrong. An entry that is wrong spoils its part."""
    shape = shape or _SHAPES[part]
    if not text.strip():
        return Layers(dict(shape.defaults)), []
    document, wrong = _object(text)
    if document is None:
        return None, wrong
    return _layers(document, shape)


def _object(text: str) -> tuple[Plain | None, list[str]]:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, [f"no JSON: {error}"]
    return (document, []) if isinstance(document, dict) else (None, ["no JSON object"])


def _layers(document: Plain, shape: _Shape) -> tuple[Layers | None, list[str]]:
    raw = {name: value for name, value in document.items() if name != shape.entries}
    own = raw if shape.flat else document.get("clusterStrategy", {})
    listed = document.get(shape.entries, [])
    own, listed = {} if own is None else own, [] if listed is None else listed
    if not isinstance(own, dict) or not isinstance(listed, list):
        return None, [f"clusterStrategy must be an object and {shape.entries} a list"]
    cluster = overlay(shape.defaults, own)
    wrong = problems(shape.kind, cluster) + (_rules(cluster) if not problems(shape.kind, cluster) else [])
    entries: list[NodeEntry] = []
    for index, item in enumerate(listed):
        entry, refused = _entry(item, index, cluster, shape)
        wrong += refused
        entries += [entry] if entry else []
    return (None, wrong) if wrong else (Layers(cluster, tuple(entries)), [])


def _entry(item: Any, index: int, cluster: Plain, shape: _Shape) -> tuple[NodeEntry | None, list[str]]:
    where = f"{shape.entries}[{index}]"
    if not isinstance(item, dict):
        return None, [f"{where}: no object"]
    own = {name: value for name, value in item.items() if name not in ("name", "nodeSelector")}
    try:
        selector = msgspec.convert(item.get("nodeSelector"), LabelSelector | None)
    except msgspec.ValidationError as error:
        return None, [f"{where}.nodeSelector: {error}"]
    if shape.kind is ColocationStrategy:
        if selector is None or not selector.match_labels:
            return None, [f"{where}: its nodeSelector needs matchLabels"]
        if not own:
            return None, [f"{where}: it sets no field of the strategy"]
    # Applications of an entry replace the cluster's; everything else is laid over it.
    merged = own if shape.kind is Applications else overlay(cluster, own)
    wrong = problems(shape.kind, merged)
    wrong = [f"{where}: {each}" for each in wrong or _rules(merged)]
    return (None, wrong) if wrong else (NodeEntry(str(item.get("name") or ""), selector, merged), [])


_ORDERED = (
    ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
    ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
    ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
    ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
)
"""Pairs of a threshold strategy of which the first must be less than the second."""


def _rules(strategy: Plain) -> list[str]:
    found = []
    for lower, upper in _ORDERED:
        low, high = strategy.get(lower), strategy.get(upper)
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            found.append(f"{lower} {low} is not less than {upper} {high}")
    return found


def _read_extensions(text: str) -> tuple[dict[str, Layers] | None, list[str]]:
    if not text.strip():
        return {}, []
    document, wrong = _object(text)
    if document is None:
        return None, wrong
    found: dict[str, Layers] = {}
    for name, part in document.items():
        layers, refused = (
            _layers(part, _Shape(Free, {}, False, "nodeStrategies"))
            if isinstance(part, dict)
            else (None, ["no JSON object"])
        )
        if layers is not None and name == POOLS:
            strategies = (layers.cluster, *(entry.strategy for entry in layers.entries))
            refused = sorted({problem for strategy in strategies for problem in refused_names(strategy)})
        wrong += [f"{name}: {each}" for each in refused]
        if layers is not None:
            found[name] = layers
    return (None, wrong) if wrong else (found, [])


def without_faults(config: SloConfig) -> SloConfig:
    """Return the configuration with nothing wrong in it."""
    return replace(config, faults=())


PARTS: Sequence[str] = (*_SHAPES, EXTENSIONS)
"""All keys that are read."""
