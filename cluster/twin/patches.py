"""Merge patch (RFC 7386), JSON patch (RFC 6902) and Kubernetes' strategic merge. Pure; inputs are not changed."""

from typing import Any

from cluster.resources import Document
from cluster.twin.status_errors import StatusError, bad_request

MERGE_KEYS: dict[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containerStatuses": "name",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "taints": "key",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""patchMergeKey of builtin lists that merge by element; other lists are replaced (tolerations, for one)."""

SET_LISTS = frozenset({"finalizers"})
"""Builtin lists of texts that merge as sets."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Strategic merge for builtin kinds, including `$patch`, `$deleteFromPrimitiveList` and `$retainKeys`."""
    if isinstance(patch, dict):
        return _strategic_map(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list) and isinstance(target, list):
        if field in SET_LISTS:
            return target + [value for value in patch if value not in target]
        if field in MERGE_KEYS and all(isinstance(value, dict) for value in patch):
            return _strategic_list(target, patch, MERGE_KEYS[field])
    if isinstance(patch, list):
        return [strategic({}, value) if isinstance(value, dict) else value for value in patch]
    return patch


def _strategic_map(target: Document, patch: Document) -> Document:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    result = {} if directive == "replace" else dict(target)
    for name, value in patch.items():
        if name == "$retainKeys":
            result = {key: kept for key, kept in result.items() if key in value}
        elif name.startswith("$deleteFromPrimitiveList/"):
            field = name.split("/", 1)[1]
            result[field] = [item for item in result.get(field, ()) if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = strategic(result.get(name), value, name)
    return result


def _strategic_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(target)
    for item in patch:
        if merge_key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {merge_key}")
        place = next((i for i, have in enumerate(result) if have.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic({}, item))
        else:
            result[place] = strategic(result[place], item)
    return result


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
