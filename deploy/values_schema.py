"""Write the schema that Helm checks values by: `python deploy/values_schema.py`.

Tables and types are those of deploy/chart/values.yaml, where no further key is allowed; descriptions are its comments.
`_MORE` says what a default value cannot.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "chart"
SCHEMA = CHART / "values.schema.json"

_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_COUNT = {"type": "integer", "minimum": 1}
_QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"], "pattern": r"^[0-9.]+([eE][0-9]+|[numkKMGTPE]i?)?$"},
}
_ABSOLUTE = {"type": "string", "pattern": "^/"}
_CAPABILITIES = {"type": "array", "items": {"type": "string", "pattern": "^[A-Z_]+$"}, "uniqueItems": True}
_MORE: dict[str, dict[str, Any]] = {
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.repository": {"minLength": 1},
    "koordlet.capabilities.observe": _CAPABILITIES,
    "koordlet.capabilities.enforce": _CAPABILITIES,
    "koordlet.capabilities.network": _CAPABILITIES,
    "koordlet.runtimeDirectory": _ABSOLUTE,
    "koordlet.kubeletDirectory": _ABSOLUTE,
    "koordlet.nriDirectory": _ABSOLUTE,
    "koordlet.metricsSecret": {"pattern": "^([a-z0-9][a-z0-9.-]*)?$"},
    "koordlet.maxUnavailable": {"type": ["integer", "string"], "pattern": "^[0-9]+%$", "minimum": 1},
    "koordlet.minReadySeconds": {"minimum": 0},
    "koordlet.terminationGracePeriodSeconds": {"minimum": 1},
    "descheduler.scheduler.url": {"pattern": "^https?://"},
    "uninstall.timeoutSeconds": {"minimum": 1},
}
_BY_NAME: dict[str, dict[str, Any]] = {
    "port": _PORT,
    "apiPort": _PORT,
    "metricsPort": _PORT,
    "replicas": _COUNT,
    "tolerations": {"type": "array", "items": {"type": "object"}},
    "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
    "seccompProfile": {
        "type": "object",
        "properties": {
            "type": {"enum": ["RuntimeDefault", "Unconfined", "Localhost"]},
            "localhostProfile": {"type": "string"},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
    "resources": {
        "type": "object",
        "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": {"type": "array"}},
        "additionalProperties": False,
    },
}
_NEEDS = {
    "koordlet.evict": "koordlet.enforce",
    "webhooks.enabled": "manager.enabled",
    "externalMetrics.enabled": "manager.enabled",
    "koordlet.metricsClientCertificates": "koordlet.metricsSecret",
}
"""Switches that do nothing without another, or without a name."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema() -> dict[str, Any]:
    """Return the schema of the chart's values."""
    text = (CHART / "values.yaml").read_text()
    found = _of(yaml.safe_load(text), (), comments(text))
    # Helm gives every chart this table; charts that are part of another one get it filled.
    found["properties"]["global"] = {"type": "object"}
    found["allOf"] = [{"if": _is_on(name), "then": _is_set(other, found)} for name, other in _NEEDS.items()]
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart koord", **found}


def _is_on(name: str) -> dict[str, Any]:
    table, _, key = name.partition(".")
    return {"required": [table], "properties": {table: {"required": [key], "properties": {key: {"const": True}}}}}


def _is_set(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """A switch that is on, or a text that is not empty."""
    table, _, key = name.partition(".")
    if found["properties"][table]["properties"][key]["type"] == "boolean":
        return _is_on(name)
    return {"required": [table], "properties": {table: {"required": [key], "properties": {key: {"minLength": 1}}}}}


def comments(text: str) -> dict[str, str]:
    """Return the comment above each key, by its path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    waiting: list[str] = []
    block: int | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if block is not None and (not line.strip() or indent > block):
            continue
        block = None
        key = re.match(r"\s*([\w.]+):(\s*\|)?", line)
        if line.lstrip().startswith("#"):
            waiting.append(line.strip().removeprefix("#").strip())
        elif key:
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, key[1]))
            if waiting:
                found[".".join(name for _, name in path)] = " ".join(waiting)
            waiting = []
            block = indent if key[2] else None
        else:
            waiting = []
    return found


def _of(value: Any, path: tuple[str, ...], said: dict[str, str]) -> dict[str, Any]:
    name = ".".join(path)
    described = {"description": said[name]} if name in said else {}
    special = _MORE.get(name) or (_BY_NAME.get(path[-1]) if path else None)
    if special is not None and "type" in special:
        return described | special
    if isinstance(value, dict):
        properties = {key: _of(each, (*path, key), said) for key, each in value.items()}
        return described | {"type": "object", "properties": properties, "additionalProperties": False}
    if isinstance(value, list):
        return described | {"type": "array"}
    return described | {"type": _TYPES[type(value)]} | (special or {})


def main() -> int:
    """Write the schema."""
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
