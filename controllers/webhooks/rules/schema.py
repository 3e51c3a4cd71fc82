"""JSON values against the schemas of custom resources: types, bounds, choices, required and unknown fields."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def violations(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield what of a value the schema forbids, each with the path to it; null counts as absent."""
    if value is None:
        return
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path} must be a number or a text"
        return
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{path} must be of type {kind}"
        return
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        yield f"{path} must be one of {', '.join(map(repr, choices))}"
    yield from _bounds(value, schema, path)
    if isinstance(value, dict):
        yield from _fields(value, schema, path)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), f"{path}[{number}]")


def _bounds(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path} must be at least {schema['minimum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{path} must be above {schema['exclusiveMinimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{path} must be at most {schema['maximum']}"


def _fields(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[str]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is required"
    for name, item in value.items():
        yield from violations(item, known.get(name, schema.get("additionalProperties", {})), f"{path}.{name}")


def unknown_fields(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield the paths of fields that the schema does not know; free maps know every field."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items", {}), f"{path}[{number}]")
    if not isinstance(value, dict) or "properties" not in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, item in value.items():
        if name not in schema["properties"]:
            yield f"{path}.{name}"
        else:
            yield from unknown_fields(item, schema["properties"][name], f"{path}.{name}")
