"""Merge patch (RFC 7386) and Kubernetes' strategic merge patch. Pure; inputs are not changed."""

from typing import Any

Document = dict[str, Any]


class PatchError(ValueError):
    """A patch that does not fit the object; the message names the element."""


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
    "webhooks": "name",
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
            raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
        place = next((i for i, have in enumerate(result) if have.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic({}, item))
        else:
            result[place] = strategic(result[place], item)
    return result
