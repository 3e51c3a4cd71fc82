"""Patches as the server applies them, with its refusals. Pure; inputs are not changed."""

from typing import Any

from api.kube import patching
from cluster.resources import Document
from cluster.twin.status_errors import StatusError, bad_request

merge = patching.merge


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge of a builtin kind; raises `StatusError` 400 for an element without its merge key."""
    try:
        return patching.strategic(target, patch)
    except patching.PatchError as error:
        raise bad_request(str(error)) from error


def json_patch(target: Document, operations: Any) -> Any:
    """RFC 6902; raises `StatusError` 422 when an operation does not fit, as the server does."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    document: Any = _copy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise StatusError(422, "Invalid", f"JSON patch operation {operation} does not fit: {error!r}") from error
    return document


def _operate(document: Any, operation: Document) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"], insert=True)
        case "replace":
            _get(document, path)
            return _put(document, path, operation["value"], insert=False)
        case "remove":
            return _take(document, path)[0]
        case "test":
            if _get(document, path) != operation["value"]:
                raise ValueError("test failed")
            return document
        case "copy":
            return _put(document, path, _copy(_get(document, _pointer(operation["from"]))), insert=True)
        case "move":
            document, value = _take(document, _pointer(operation["from"]))
            return _put(document, path, value, insert=True)
    raise ValueError(f"unknown operation {operation['op']}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"pointer {text!r} does not start with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        if int(last) > len(parent):
            raise IndexError(last)
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value
    return document


def _take(document: Any, path: list[str]) -> tuple[Any, Any]:
    parent, last = _get(document, path[:-1]), path[-1]
    value = parent.pop(int(last)) if isinstance(parent, list) else parent.pop(last)
    return document, value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
