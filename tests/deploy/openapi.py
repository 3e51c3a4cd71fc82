"""The API server's own schemas of the kinds that the chart makes, recorded, and objects checked by them.

`python -m tests.deploy.openapi FOLDER` records them anew: FOLDER has the server's documents, as
`kubectl get --raw /openapi/v3/apis/apps/v1` prints them, each in a file of its own, and `kubectl version -o json` in
version.json. Descriptions are left out, and fields that no schema names are refused, as the server does when asked to
be strict.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

RECORDED = Path(__file__).parent / "openapi.json"
KINDS = {
    ("", "v1"): ("ConfigMap", "Namespace", "Secret", "Service", "ServiceAccount"),
    ("apps", "v1"): ("DaemonSet", "Deployment"),
    ("batch", "v1"): ("Job",),
    ("policy", "v1"): ("PodDisruptionBudget",),
    ("rbac.authorization.k8s.io", "v1"): ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    ("admissionregistration.k8s.io", "v1"): (
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ),
}
_KIND = "x-kubernetes-group-version-kind"
_REFERENCE = "#/components/schemas/"


def record(folder: Path) -> dict[str, Any]:
    """Return the schemas of the kinds and of all that they refer to."""
    everything: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        everything |= json.loads(path.read_text()).get("components", {}).get("schemas", {})
    names: dict[str, str] = {}
    for name, schema in everything.items():
        for kind in schema.get(_KIND, ()):
            if kind["kind"] in KINDS.get((kind["group"], kind["version"]), ()):
                names[f"{kind['group']}/{kind['version']} {kind['kind']}"] = name
    wanted, schemas = list(names.values()), {}
    while wanted:
        name = wanted.pop()
        if name not in schemas:
            schemas[name] = _reduced(everything[name])
            wanted += _references(schemas[name])
    version = json.loads((folder / "version.json").read_text())["serverVersion"]["gitVersion"]
    return {"version": version, "kinds": dict(sorted(names.items())), "definitions": dict(sorted(schemas.items()))}


def refusals(document: dict[str, Any]) -> list[str]:
    """Return what the schema of an object's kind refuses; an unknown kind is refused too."""
    group, _, version = document["apiVersion"].rpartition("/")
    kind = f"{group}/{version} {document['kind']}"
    if kind not in _recorded()["kinds"]:
        return [f"{kind}: no schema is recorded"]
    found = _validator(kind).iter_errors(document)
    return [f"{kind} {document['metadata']['name']}: {error.json_path}: {error.message}" for error in found]


@cache
def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@cache
def _validator(kind: str) -> jsonschema.Draft7Validator:
    recorded = _recorded()
    reference = {"$ref": f"#/definitions/{recorded['kinds'][kind]}", "definitions": recorded["definitions"]}
    return jsonschema.Draft7Validator(reference)


def _reduced(schema: Any) -> Any:
    """Return a schema as JSON schema has it: without descriptions and defaults, strict, with references to us."""
    if isinstance(schema, list):
        return [_reduced(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(_REFERENCE, "#/definitions/")}
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return _reduced(schema["allOf"][0])
    kept = {
        key: {name: _reduced(each) for name, each in value.items()} if key == "properties" else _reduced(value)
        for key, value in schema.items()
        if key in ("type", "properties", "items", "required", "enum", "oneOf", "anyOf", "additionalProperties")
    }
    if schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    if "properties" in kept and "additionalProperties" not in kept:
        kept["additionalProperties"] = False
    return kept


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix("#/definitions/")] if isinstance(schema.get("$ref"), str) else []
    return [*own, *(name for each in schema.values() for name in _references(each))]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(Path(sys.argv[1])), separators=(",", ":")) + "\n")
