"""The slo-controller ConfigMap: JSON, ranges, and node entries that do not contradict each other."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from api.crds.definition import object_schema
from api.crds.node_slo import NodeSLO
from api.kube.meta import LabelSelector
from api.kube.selectors import label_selector_matches
from api.protocol import CONFIG_MAP_SLO_CONTROLLER
from controllers.webhooks.review import ADMITTED, Answer, Document, Request
from controllers.webhooks.rules.schema import Schema, unknown_fields, violations
from controllers.webhooks.view import ClusterView

LABEL_CONFIG_MAP_TYPE = "koordinator.sh/configmap-type"
CONFIG_MAP_TYPE = "slo-controller-config"
SHOWN = 3
"""Nodes and unknown fields named in a message."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_SPEC: Schema = object_schema(NodeSLO)["properties"]["spec"]["properties"]
_BOOLEAN: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_FROM_ZERO: Schema = {"type": "integer", "minimum": 0}
_PERCENT: Schema = {"type": "integer", "minimum": 0, "maximum": 100}
_POLICY: Schema = {"type": "string", "enum": ["", "usage", "request", "maxUsageRequest"]}
_TEXT: Schema = {"type": "string"}
_FREE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_RATIO: Schema = {"type": "number", "minimum": 1.0, "maximum": 5.0}

_COLOCATION: Schema = {
    "enable": _BOOLEAN,
    "metricAggregateDurationSeconds": _COUNT,
    "metricReportIntervalSeconds": _COUNT,
    "metricAggregatePolicy": _FREE,
    "metricMemoryCollectPolicy": {
        "type": "string",
        "enum": ["", "usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"],
    },
    "cpuReclaimThresholdPercent": _FROM_ZERO,
    "memoryReclaimThresholdPercent": _FROM_ZERO,
    "cpuCalculatePolicy": _POLICY,
    "memoryCalculatePolicy": _POLICY,
    "degradeTimeMinutes": _COUNT,
    "updateTimeThresholdSeconds": _COUNT,
    "resourceDiffThreshold": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "midReclaimMode": _TEXT,
    "midCPUThresholdPercent": _PERCENT,
    "midMemoryThresholdPercent": _PERCENT,
    "midUnallocatedPercent": _PERCENT,
    "midStaticCPUReservedPercent": _PERCENT,
    "midStaticMemoryReservedPercent": _PERCENT,
    "batchCPUThresholdPercent": _FROM_ZERO,
    "batchMemoryThresholdPercent": _FROM_ZERO,
    "allocatableCPUPercent": _FROM_ZERO,
    "allocatableMemoryPercent": _FROM_ZERO,
    "extensions": _FREE,
}
_MODEL_RATIOS = ("baseRatio", "hyperThreadEnabledRatio", "turboEnabledRatio", "hyperThreadTurboEnabledRatio")
_MODEL: Schema = {
    "type": "object",
    "properties": dict.fromkeys(_MODEL_RATIOS, _RATIO),
}
_NORMALIZATION: Schema = {
    "enable": _BOOLEAN,
    "defaultRatio": _RATIO,
    "ratioModel": {"type": "object", "additionalProperties": _MODEL},
}
_AMPLIFICATION: Schema = {
    "enable": _BOOLEAN,
    "resourceAmplificationRatio": {"type": "object", "additionalProperties": {"type": "number", "minimum": 1.0}},
}
_ENTRY: Schema = {"name": _TEXT, "nodeSelector": _FREE}


def _flat(fields: Schema) -> Schema:
    entries = {"type": "array", "items": {"type": "object", "properties": {**fields, **_ENTRY}}}
    return {"type": "object", "properties": {**fields, "nodeConfigs": entries}}


def _strategies(strategy: Schema) -> Schema:
    entry = {"type": "object", "properties": {**strategy.get("properties", {}), **_ENTRY}}
    entries = {"type": "array", "items": entry}
    return {"type": "object", "properties": {"clusterStrategy": strategy, "nodeStrategies": entries}}


SCHEMAS: Mapping[str, Schema] = {
    "colocation-config": _flat(_COLOCATION),
    "resource-threshold-config": _strategies(_SPEC["resourceUsedThresholdWithBE"]),
    "resource-qos-config": _strategies(_SPEC["resourceQOSStrategy"]),
    "cpu-burst-config": _strategies(_SPEC["cpuBurstStrategy"]),
    "system-config": _strategies(_SPEC["systemStrategy"]),
    "host-application-config": _flat({"applications": _SPEC["hostApplications"]}),
    "cpu-normalization-config": _flat(_NORMALIZATION),
    "resource-amplification-config": _flat(_AMPLIFICATION),
}
"""Schema of each key of the ConfigMap."""


def validate_config_map(request: Request, view: ClusterView) -> Answer:
    """Answer a write of the slo-controller ConfigMap; others are admitted.

    Keys whose text did not change are not looked at, so that one bad key does not hold the others up.
    """
    if request.object is None or request.operation not in ("CREATE", "UPDATE") or not _is_settings(request):
        return ADMITTED
    before, after = _data(request.old_object), _data(request.object)
    refusals: list[str] = []
    warnings: list[str] = []
    for key, schema in SCHEMAS.items():
        text = after.get(key)
        if text and text != before.get(key):
            _judge(key, text, schema, view, refusals, warnings)
    return Answer(refusal="; ".join(refusals), code=403, warnings=tuple(warnings))


def _is_settings(request: Request) -> bool:
    metadata = (request.object or {}).get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    labelled = isinstance(labels, dict) and labels.get(LABEL_CONFIG_MAP_TYPE) == CONFIG_MAP_TYPE
    return labelled or request.name == CONFIG_MAP_SLO_CONTROLLER


def _data(document: Document | None) -> Mapping[str, str]:
    data = (document or {}).get("data")
    return {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}


def _judge(key: str, text: str, schema: Schema, view: ClusterView, refusals: list[str], warnings: list[str]) -> None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        refusals.append(f"{key}: not JSON: {error}")
        return
    found = [*violations(value, schema, key)]
    if found:
        refusals.extend(found)
        return
    unknown = [*unknown_fields(value, schema, key)]
    if unknown:
        warnings.append(f"fields that nothing reads: {', '.join(unknown[:SHOWN])}")
    refusals.extend(_entry_refusals(key, value or {}, view.node_labels))


def _entry_refusals(key: str, value: Document, node_labels: Any) -> Iterator[str]:
    field = "nodeConfigs" if "nodeConfigs" in value else "nodeStrategies"
    entries: list[Document] = value.get(field) or []
    selectors: list[tuple[str, LabelSelector]] = []
    names: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{key}.{field}[{number}]"
        name = str(entry.get("name") or "")
        if name and name in names:
            yield f"{place}: another entry has the name {name}"
        names.add(name)
        try:
            selector = msgspec.convert(entry.get("nodeSelector") or {}, LabelSelector)
        except msgspec.ValidationError as error:
            yield f"{place}.nodeSelector: {error}"
            continue
        if not selector.match_labels and not selector.match_expressions:
            yield f"{place}.nodeSelector must not be empty: the cluster's strategy is for all nodes"
        elif any(item.operator not in _OPERATORS for item in selector.match_expressions):
            yield f"{place}.nodeSelector has an unknown operator; there are {', '.join(sorted(_OPERATORS))}"
        selectors.append((name or f"number {number}", selector))
    if len(selectors) > 1:
        yield from _overlaps(key, selectors, node_labels())


def _overlaps(
    key: str, selectors: list[tuple[str, LabelSelector]], nodes: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    found: dict[tuple[str, ...], list[str]] = {}
    for node, labels in nodes.items():
        matching = tuple(name for name, selector in selectors if label_selector_matches(selector, labels))
        if len(matching) > 1:
            found.setdefault(matching, []).append(node)
    for matching, names in found.items():
        yield f"{key}: entries {', '.join(matching)} all select {', '.join(sorted(names)[:SHOWN])}"
