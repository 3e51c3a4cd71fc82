"""Server-side apply: each manager owns the fields it last applied.

As good as needed: ownership is tracked between appliers, by leaf field; plain writes own nothing. Lists of
builtin kinds merge by the keys of strategic merge, other lists are one field.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from api.kube.patching import MERGE_KEYS
from cluster.resources import Document
from cluster.twin.status_errors import StatusError

Path = tuple[str, ...]
"""Steps to a field: names, and `name=value` for an element of a keyed list."""

_IDENTITY = frozenset({("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")})


@dataclass(slots=True)
class Ownership:
    """Fields of one object by the manager that applied them, with the applied values."""

    fields: dict[str, dict[Path, Any]] = field(default_factory=dict)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field of a document with its path; empty maps and unkeyed lists are fields themselves."""
    key = MERGE_KEYS.get(path[-1]) if path else None
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif key and isinstance(value, list) and value and all(isinstance(v, dict) and key in v for v in value):
        for item in value:
            yield from leaves(item, (*path, f"{key}={item[key]}"))
    else:
        yield path, value


def apply(current: Document, wanted: Document, ownership: Ownership, *, manager: str, force: bool) -> Document:
    """The object after `manager` applied `wanted`; records what it owns from here on.

    Raises `StatusError` 409 with a FieldManagerConflict per field when another applier owns it with another
    value and `force` is off.
    """
    fields = {path: value for path, value in leaves(wanted) if path not in _IDENTITY}
    rivals = {
        (other, path)
        for other, owned in ownership.fields.items()
        for path, value in owned.items()
        if other != manager and path in fields and fields[path] != value
    }
    if rivals and not force:
        causes = tuple(
            ("FieldManagerConflict", f'conflict with "{other}": .{".".join(path)}') for other, path in sorted(rivals)
        )
        raise StatusError(409, "Conflict", f"Apply failed with {len(causes)} conflict(s)", causes=causes)
    for other, path in rivals:
        del ownership.fields[other][path]
    abandoned = ownership.fields.get(manager, {}).keys() - fields.keys()
    kept = {path for other, owned in ownership.fields.items() if other != manager for path in owned}
    ownership.fields[manager] = fields
    result: Any = current
    for path in sorted(abandoned - kept):
        result = without(result, path)
    for path, value in fields.items():
        result = with_value(result, path, value)
    return {**result, "apiVersion": wanted["apiVersion"], "kind": wanted["kind"]}


def with_value(value: Any, path: Path, leaf: Any) -> Any:
    """A copy of `value` in which `path` holds `leaf`; missing steps are made."""
    if not path:
        return leaf
    step, rest = path[0], path[1:]
    if _keyed(value, step):
        key, _, wanted = step.partition("=")
        items = list(value or ())
        place = next((i for i, item in enumerate(items) if str(item.get(key)) == wanted), None)
        if place is None:
            items.append(with_value({}, rest, leaf))
        else:
            items[place] = with_value(items[place], rest, leaf)
        return items
    fields = dict(value) if isinstance(value, dict) else {}
    child = fields.get(step)
    if child is None and rest and _keyed(None, rest[0]) and step in MERGE_KEYS:
        child = []
    fields[step] = with_value(child, rest, leaf)
    return fields


def without(value: Any, path: Path) -> Any:
    """A copy of `value` that lacks `path`; maps and keyed elements left empty by that go too."""
    step, rest = path[0], path[1:]
    if isinstance(value, list):
        key, _, wanted = step.partition("=")
        changed = [without(item, rest) if str(item.get(key)) == wanted else item for item in value]
        # An element whose other fields all went is reduced to its key, which is its own leaf.
        return [item for item in changed if item]
    if not isinstance(value, dict) or step not in value:
        return value
    fields = dict(value)
    child = without(fields[step], rest) if rest else None
    if child is None or child in ({}, []):
        del fields[step]
    else:
        fields[step] = child
    return fields


def _keyed(value: Any, step: str) -> bool:
    return isinstance(value, list) or (value is None and "=" in step)
