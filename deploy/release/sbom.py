"""The bill of materials: CycloneDX 1.5 from the lock file and the installed metadata, the same bytes each time."""

import json
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.locked import PROJECT, Pin

_BY_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_BY_WORDS = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "mit": "MIT",
    "mit license": "MIT",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "isc": "ISC",
}
"""Texts of older packages; newer ones state an SPDX expression."""


def licence_of(package: Distribution) -> str:
    """Return the licence as an SPDX expression, else as the package words it; empty where it says nothing."""
    metadata = package.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    text = str(metadata.get("License") or "").strip()
    first = text.splitlines()[0].strip() if text else ""
    if first.lower() in _BY_WORDS:
        return _BY_WORDS[first.lower()]
    for classifier in metadata.get_all("Classifier") or ():
        if classifier.startswith("License ::"):
            name = classifier.rpartition(" :: ")[2]
            return _BY_CLASSIFIER.get(name, name)
    return first[:80]


def bill(version: str, pins: Iterable[Pin], extras: Iterable[str], seconds: str) -> str:
    """Return the document as JSON text; `seconds` is the time of the release, as RFC 3339.

    Raises PackageNotFoundError where a package is not installed.
    """
    known = {pin.name: pin for pin in pins}
    root = f"pkg:pypi/{PROJECT}@{version}"
    references = {name: f"pkg:pypi/{name}@{pin.version}" for name, pin in known.items()}
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + ''.join(sorted(references.values())))}",
        "version": 1,
        "metadata": {
            "timestamp": seconds,
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": PROJECT,
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": "koord:extras", "value": " ".join(sorted(extras))}],
        },
        "components": [_component(pin) for pin in known.values()],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(references.values())},
            *({"ref": references[name], "dependsOn": _needs(name, references)} for name in sorted(references)),
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _component(pin: Pin) -> dict[str, Any]:
    package = distribution(pin.name)
    licence = licence_of(package)
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{pin.name}@{pin.version}",
        "name": pin.name,
        "version": pin.version,
        "purl": f"pkg:pypi/{pin.name}@{pin.version}",
        "description": str(package.metadata.get("Summary") or ""),
        # Every file of the version that the lock accepts: wheels of each platform, and the source.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{pin.name}/{pin.version}/",
                "hashes": [{"alg": "SHA-256", "content": each.partition(":")[2]} for each in pin.hashes],
            }
        ],
    }
    if licence:
        is_expression = package.metadata.get("License-Expression") is not None
        found["licenses"] = [{"expression": licence}] if is_expression else [{"license": {"name": licence}}]
    return found


def _needs(name: str, references: dict[str, str]) -> list[str]:
    wanted = {canonicalize_name(Requirement(text).name) for text in distribution(name).requires or ()}
    return sorted(references[each] for each in wanted if each in references)
