"""JSON patch (RFC 6902) from the difference of two documents."""

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]
"""`op`, `path` and, except for a removal, `value`."""


def difference(before: Any, after: Any) -> list[Operation]:
    """Return operations that turn `before` into `after`.

    Maps are compared key by key, lists of one length element by element; a list of another length is replaced.
    """
    return list(_difference(before, after, ""))


def _difference(before: Any, after: Any, path: str) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() - after.keys():
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
        for name, value in after.items():
            place = f"{path}/{_escaped(name)}"
            if name in before:
                yield from _difference(before[name], value, place)
            else:
                yield {"op": "add", "path": place, "value": value}
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _difference(old, new, f"{path}/{number}")
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
