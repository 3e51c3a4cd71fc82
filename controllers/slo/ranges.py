"""Checks of documents against a struct's types, enumerations and ranges, as the API server enforces its schemas."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect


def problems(kind: type[msgspec.Struct], document: Any) -> list[str]:
    """Return what does not fit, each with its path; empty when `document` is a valid `kind`. Unknown fields pass."""
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        return [str(error)]
    return list(_struct(inspect.type_info(kind), document, ""))


def _struct(kind: inspect.Type, value: Mapping[str, Any], path: str) -> Iterator[str]:
    assert isinstance(kind, inspect.StructType)
    for field in kind.fields:
        if field.encode_name in value:
            yield from _value(field.type, value[field.encode_name], f"{path}.{field.encode_name}".lstrip("."))


def _value(kind: inspect.Type, value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    if isinstance(kind, inspect.Metadata):
        yield from _limits(kind.extra_json_schema or {}, value, path)
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            if isinstance(each, inspect.Metadata | inspect.StructType):
                yield from _value(each, value, path)
    elif isinstance(kind, inspect.StructType) and isinstance(value, Mapping):
        yield from _struct(kind, value, path)
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _value(kind.item_type, item, f"{path}[{index}]")
    elif isinstance(kind, inspect.DictType) and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _value(kind.value_type, item, f"{path}.{key}")


def _limits(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {', '.join(map(repr, schema['enum']))}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{path}: {value} is not more than {schema['exclusiveMinimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{path}: {value} is more than {schema['maximum']}"
