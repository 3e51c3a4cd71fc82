"""A custom resource as one declaration: where it lives in the API, its struct, and the schema that follows.

The OpenAPI schema is derived from the struct, so that the two cannot differ. Ranges and enumerations are
annotations (`Annotated[int, between(0, 100)]`): the API server enforces them, decoding does not, because an
object written under other rules must still be readable.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

M = TypeVar("M", bound=msgspec.Struct)

Schema = dict[str, Any]

STATELESS = {"x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `path` is a JSONPath from the object's root."""

    name: str
    path: str
    type: str = "string"


@dataclass(frozen=True, slots=True)
class Definition(Generic[M]):
    """A custom kind. `status` says that it has a status subresource; `model` decodes its objects."""

    kind: str
    plural: str
    group: str
    model: type[M]
    version: str = "v1alpha1"
    later_versions: tuple[str, ...] = ()
    """Further versions that are served, with the same schema; the last one is stored."""
    namespaced: bool = False
    status: bool = True
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    approval: str = ""
    """Where the API of a group under k8s.io was approved; the API server refuses such a kind without it."""

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition object."""
        return f"{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        """`group/version`, as objects carry it."""
        return f"{self.group}/{self.version}"


def among(*values: str) -> msgspec.Meta:
    """Annotation of a text that is one of `values`."""
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


def between(least: int | None = None, most: int | None = None) -> msgspec.Meta:
    """Annotation of a number within inclusive bounds."""
    bounds = {"minimum": least, "maximum": most}
    return msgspec.Meta(extra_json_schema={name: value for name, value in bounds.items() if value is not None})


def nonempty() -> msgspec.Meta:
    """Annotation of a list or text that has at least one element."""
    return msgspec.Meta(extra_json_schema={"min": 1})


TIME = msgspec.Meta(extra_json_schema={"format": "date-time"})
"""Annotation of an RFC 3339 time."""

OPAQUE = msgspec.Meta(extra_json_schema={"type": "object", **STATELESS})
"""Annotation of an object whose fields another program owns; they are kept as they are."""


def definition_document(definition: Definition[Any]) -> dict[str, Any]:
    """The CustomResourceDefinition (apiextensions.k8s.io/v1) as a JSON document."""
    names: dict[str, Any] = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    metadata: dict[str, Any] = {"name": definition.name}
    if definition.approval:
        metadata["annotations"] = {"api-approved.kubernetes.io": definition.approval}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": definition.group,
            "names": names,
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "versions": _versions(definition),
        },
    }


def _versions(definition: Definition[Any]) -> list[dict[str, Any]]:
    names = (definition.version, *definition.later_versions)
    versions: list[dict[str, Any]] = []
    for name in names:
        version: dict[str, Any] = {
            "name": name,
            "served": True,
            "storage": name == names[-1],
            "schema": {"openAPIV3Schema": object_schema(definition.model)},
        }
        if definition.status:
            version["subresources"] = {"status": {}}
        if definition.columns:
            version["additionalPrinterColumns"] = [
                {"name": column.name, "type": column.type, "jsonPath": column.path} for column in definition.columns
            ]
        versions.append(version)
    return versions


def object_schema(model: type[msgspec.Struct]) -> Schema:
    """Structural schema of a whole object; metadata is left to the API server."""
    schema = _schema(inspect.type_info(model))
    properties = schema["properties"]
    properties["metadata"] = {"type": "object"}
    ours = {name: properties[name] for name in sorted(properties)}
    schema["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **ours}
    return schema


def _schema(kind: inspect.Type) -> Schema:
    if isinstance(kind, inspect.Metadata):
        return _annotated(kind)
    if isinstance(kind, inspect.StructType):
        return _struct(kind)
    if isinstance(kind, inspect.ListType):
        return {"type": "array", "items": _schema(kind.item_type)}
    if isinstance(kind, inspect.DictType):
        return {"type": "object", "additionalProperties": _schema(kind.value_type)}
    if isinstance(kind, inspect.UnionType):
        return _union(kind)
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise TypeError(f"no schema for {kind}; give the field a type that JSON and Kubernetes share")
    return dict(simple)


_SIMPLE: dict[type[inspect.Type], Schema] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer", "format": "int64"},
    inspect.FloatType: {"type": "number"},
    inspect.AnyType: STATELESS,
}


def _annotated(kind: inspect.Metadata) -> Schema:
    extra = dict(kind.extra_json_schema or {})
    if extra.get("x-kubernetes-preserve-unknown-fields"):
        return extra
    schema = _schema(kind.type)
    least = extra.pop("min", None)
    if least is not None:
        schema["minItems" if schema.get("type") == "array" else "minLength"] = least
    return schema | extra


def _struct(kind: inspect.StructType) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {field.encode_name: _schema(field.type) for field in kind.fields},
    }
    required = sorted(field.encode_name for field in kind.fields if field.required)
    return schema | ({"required": required} if required else {})


def _union(kind: inspect.UnionType) -> Schema:
    kinds = [item for item in kind.types if not isinstance(item, inspect.NoneType)]
    if len(kinds) == 1:
        return _schema(kinds[0])
    if all(isinstance(item, inspect.StrType | inspect.IntType | inspect.FloatType) for item in kinds):
        # Quantities and percentages. Fractions reach the server as texts, as Kubernetes wants them.
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    raise TypeError(f"no schema for the union {kind}; a Kubernetes field has one type")
