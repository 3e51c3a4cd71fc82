"""Our custom resource definitions beside those of another project: `python -m tests.api.upstream_fields FOLDER`.

FOLDER has CustomResourceDefinitions as YAML, such as `config/crd/bases` of github.com/koordinator-sh/koordinator.
Prints for each version of each kind the fields of theirs that ours lacks, types that differ, and columns and
subresources that ours lacks. A field below an object of ours that keeps unknown fields is not lacking. Exit code 1
where anything is.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

OURS = Path(__file__).parents[2] / "deploy" / "crds"


@dataclass
class Difference:
    """What a version of ours lacks of theirs."""

    kind: str
    fields: int
    """Fields of theirs."""
    missing: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """Whether ours has all of it."""
        return not (self.missing or self.types or self.other)


def types_of(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and type of every field of a schema; `open` keeps unknown fields."""
    kind = str(schema.get("type", ""))
    if schema.get("x-kubernetes-int-or-string"):
        kind = "int-or-string"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        kind = "open"
    yield path, kind
    for name, below in (schema.get("properties") or {}).items():
        yield from types_of(below, f"{path}.{name}")
    if "items" in schema:
        yield from types_of(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from types_of(schema["additionalProperties"], f"{path}{{}}")


def difference(kind: str, theirs: Mapping[str, Any], ours: Mapping[str, Any] | None) -> Difference:
    """Return what a version of ours lacks of theirs; `ours` None is a version that is not there."""
    wanted = dict(types_of(theirs["schema"]["openAPIV3Schema"]))
    # Metadata is the API server's, whatever a schema says of it.
    wanted = {path: each for path, each in wanted.items() if path and not path.startswith(".metadata.")}
    if ours is None:
        return Difference(kind, len(wanted), other=["the version"])
    have = dict(types_of(ours["schema"]["openAPIV3Schema"]))
    opened = tuple(path for path, each in have.items() if each == "open")
    found = Difference(kind, len(wanted))
    for path, each in sorted(wanted.items()):
        if path in have:
            # What keeps unknown fields takes every object.
            if have[path] != each and have[path] != "open":
                found.types.append(f"{path}: {each} there, {have[path]} here")
        elif not path.startswith(opened):
            found.missing.append(path)
    paths = {column["jsonPath"] for column in ours.get("additionalPrinterColumns") or ()}
    columns = theirs.get("additionalPrinterColumns") or ()
    found.other = [f"column {column['name']}" for column in columns if column["jsonPath"] not in paths]
    missing = (theirs.get("subresources") or {}).keys() - (ours.get("subresources") or {}).keys()
    found.other += [f"subresource {name}" for name in sorted(missing)]
    return found


def differences(folder: Path, ours: Path = OURS) -> Iterator[Difference]:
    """Yield a difference for every served version of the definitions in a folder."""
    for file in sorted(folder.glob("*.yaml")):
        theirs = yaml.safe_load(file.read_text())
        if not isinstance(theirs, Mapping) or theirs.get("kind") != "CustomResourceDefinition":
            continue
        name = theirs["metadata"]["name"]
        own = ours / f"{name}.yaml"
        spec = yaml.safe_load(own.read_text())["spec"] if own.exists() else {"versions": []}
        versions = {version["name"]: version for version in spec["versions"]}
        for version in theirs["spec"]["versions"]:
            if version.get("served"):
                found = difference(f"{name} {version['name']}", version, versions.get(version["name"]))
                if spec["versions"] and spec["scope"] != theirs["spec"]["scope"]:
                    found.other.append(f"scope {theirs['spec']['scope']}")
                yield found


def main(arguments: list[str]) -> int:
    """Print a line for each version, and what it lacks."""
    total, lacking, differs = 0, 0, False
    for each in differences(Path(arguments[0])):
        total += each.fields
        lacking += len(each.missing)
        differs |= not each.is_none
        print(f"{each.kind}: {each.fields} fields, {len(each.missing)} missing")
        for line in (*each.missing, *each.types, *each.other):
            print(f"  {line}")
    print(f"{total} fields, {lacking} missing")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
