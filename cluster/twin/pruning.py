"""Pruning of a custom object by its schema: unknown fields go, missing ones get their defaults."""

from typing import Any

from cluster.resources import Document

_ALWAYS_KEPT = ("apiVersion", "kind", "metadata")


def prune(document: Document, schema: Document) -> Document:
    """The object as a structural schema keeps it; metadata is not the schema's business."""
    kept = {name: document[name] for name in _ALWAYS_KEPT if name in document}
    rest = {name: value for name, value in document.items() if name not in _ALWAYS_KEPT}
    result = _pruned(rest, schema)
    return kept | (result if isinstance(result, dict) else {})


def _pruned(value: Any, schema: Document) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        return [_pruned(item, items) for item in value] if items else value
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties")
    if properties is None:
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            return {name: _pruned(item, extra) for name, item in value.items()}
        return value if schema.get("x-kubernetes-preserve-unknown-fields") or extra else {}
    result = {
        name: _pruned(item, properties.get(name, {"x-kubernetes-preserve-unknown-fields": True}))
        for name, item in value.items()
        if name in properties or schema.get("x-kubernetes-preserve-unknown-fields")
    }
    for name, field in properties.items():
        if name not in result and "default" in field:
            result[name] = field["default"]
    return result
