"""Generate the CustomResourceDefinitions beside this file, one manifest per kind, from the structs in `api.crds`.

Usage: python deploy/crds/generate.py
"""

import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from api.crds import DEFINITIONS, Definition, definition_document  # noqa: E402


def manifest(definition: Definition[Any]) -> str:
    """The definition as YAML."""
    return yaml.safe_dump(definition_document(definition), sort_keys=False, width=100)


def path(definition: Definition[Any]) -> Path:
    """The file of a definition."""
    return HERE / f"{definition.name}.yaml"


def main() -> None:
    """Write all manifests and remove those of dropped kinds."""
    wanted = {path(definition): manifest(definition) for definition in DEFINITIONS}
    for stale in set(HERE.glob("*.yaml")) - wanted.keys():
        stale.unlink()
    for file, text in wanted.items():
        file.write_text(text)


if __name__ == "__main__":
    main()
