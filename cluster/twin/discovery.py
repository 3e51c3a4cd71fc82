"""API discovery: the documents by which kubectl and generic clients find the kinds that are served."""

from typing import Any

import msgspec

from cluster.twin.database import Database
from cluster.twin.kinds import ServedKind

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_PLAIN = {
    "/healthz": b'"ok"',
    "/livez": b'"ok"',
    "/readyz": b'"ok"',
    "/version": b'{"major":"1","minor":"33","gitVersion":"v1.33.0+twin"}',
    "/api": b'{"kind":"APIVersions","versions":["v1"]}',
}


def discover(database: Database, path: str) -> bytes | None:
    """Return the body for a path that names no objects; None for all others."""
    plain = _PLAIN.get(path)
    if plain is not None:
        return plain
    parts = path.strip("/").split("/")
    if parts == ["apis"]:
        return msgspec.json.encode(_groups(database))
    if parts[0] == "api" and len(parts) == 2:
        return _resources(database, "", parts[1])
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(database, parts[1], parts[2])
    return None


def _groups(database: Database) -> dict[str, Any]:
    versions: dict[str, list[str]] = {}
    for group, version, _ in database.tables:
        if group and version not in versions.setdefault(group, []):
            versions[group].append(version)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{version}", "version": version} for version in served],
                "preferredVersion": {"groupVersion": f"{group}/{served[0]}", "version": served[0]},
            }
            for group, served in sorted(versions.items())
        ],
    }


def _resources(database: Database, group: str, version: str) -> bytes | None:
    kinds = [table.kind for place, table in database.tables.items() if place[:2] == (group, version)]
    if not kinds:
        return None
    name = f"{group}/{version}" if group else version
    resources = [entry for kind in kinds for entry in _entries(kind)]
    return msgspec.json.encode(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
    )


def _entries(kind: ServedKind) -> list[dict[str, Any]]:
    entry = {"kind": kind.name, "namespaced": kind.namespaced, "singularName": kind.name.lower()}
    entries = [{**entry, "name": kind.plural, "verbs": _VERBS}]
    if kind.status:
        entries.append({**entry, "name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]})
    if kind.name == "Pod":
        for name, subresource, group in (("binding", "Binding", ""), ("eviction", "Eviction", "policy")):
            special = {"kind": subresource, "name": f"pods/{name}", "verbs": ["create"]}
            entries.append({**entry, **special} | ({"group": group, "version": "v1"} if group else {}))
    return entries
