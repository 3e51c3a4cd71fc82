"""Published manifests at a real API server: `python -m tests.cluster_e2e.manifests NAME=FOLDER... > table.md`.

Takes every YAML file and every YAML block of a text below each folder, and applies each object unchanged with kubectl,
which has the server refuse unknown fields. Installed before are our custom resource definitions and Koordinator's
priority classes; then the same with the admission policies of the chart. Binaries come from KUBEBUILDER_ASSETS.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import apiserver
from tests.deploy.admission_cases import BANDS
from tests.deploy.charts import ROOT, documents
from tests.waiting import wait_for

_FENCE = re.compile(r"^[ \t]*```[ \t]*ya?ml[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_PRINTED = re.compile(r"^apiVersion: \S+\n(?:(?:[ ]+\S.*|- .*|[A-Za-z]\w*:(?: .*)?)\n?)+", re.MULTILINE)
POLICIES = ("podAllocations", "podClasses", "exclusiveClasses", "elasticQuotas")


@dataclass(frozen=True)
class Found:
    """A piece of YAML: where it stands, and its text."""

    source: str
    place: str
    text: str

    @property
    def where(self) -> str:
        """Source and place."""
        return f"{self.source}: {self.place}" if self.source else self.place


def pieces(name: str, folder: Path) -> Iterator[Found]:
    """Yield YAML files and YAML blocks below a folder."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in (".yaml", ".yml", ".md", ".txt"):
            continue
        place = str(path.relative_to(folder))
        text = path.read_text(errors="replace")
        blocks = [text] if path.suffix in (".yaml", ".yml") else _blocks(text)
        for number, block in enumerate(blocks, 1):
            where = place if len(blocks) == 1 else f"{place} #{number}"
            for part in re.split(r"^---[ \t]*$", block, flags=re.MULTILINE):
                if part.strip():
                    yield Found(name, where, part)


def _blocks(text: str) -> list[str]:
    """Return the YAML blocks of a text: fenced ones, and objects that stand in it as a command printed them."""
    fenced = [match[1] for match in _FENCE.finditer(text)]
    return [*fenced, *(match[0] for match in _PRINTED.finditer(_FENCE.sub("", text)))]


def objects(found: Found) -> tuple[list[dict[str, Any]], str]:
    """Return the objects of a piece, or why there are none."""
    lines = found.text.splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:] for line in lines)
    if "{{" in text:
        return [], "a template of Helm"
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [], f"not YAML (text between the fields): {str(error).splitlines()[0]}"
    if not isinstance(parsed, dict) or not {"apiVersion", "kind"} <= parsed.keys():
        return [], "a fragment without apiVersion and kind"
    if parsed["kind"] == "List":
        return list(parsed.get("items") or ()), ""
    return [parsed], ""


class Kubectl:
    """kubectl of the assets, as an administrator."""

    def __init__(self, assets: Path, kubeconfig: Path) -> None:
        self._command = [str(assets / "kubectl"), f"--kubeconfig={kubeconfig}"]

    def run(self, *arguments: str, document: dict[str, Any] | None = None) -> str:
        """Return what it refuses; empty where it does not."""
        text = yaml.safe_dump(document, sort_keys=False) if document is not None else None
        done = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True, check=False)
        return " ".join(done.stderr.split()) if done.returncode else ""

    def apply(self, document: dict[str, Any], *options: str) -> str:
        """Apply an object, in its namespace, which is made where it is absent."""
        namespace = str((document.get("metadata") or {}).get("namespace") or "")
        if namespace:
            self.run("create", "namespace", namespace)
        verb = "create" if (document.get("metadata") or {}).get("generateName") else "apply"
        return self.run(verb, *options, "-f", "-", document=document)


@dataclass(frozen=True)
class Row:
    """An object and why it was refused, or a piece without one and why; `policed` is the refusal of policies alone."""

    piece: Found
    object: str
    refused: str
    policed: str = ""


def tried(kubectl: Kubectl, found: list[Found]) -> list[Row]:
    """Apply every object, definitions of kinds first."""
    rows = []
    listed = [(piece, *objects(piece)) for piece in found]
    for _, items, _ in listed:
        for item in items:
            if item["kind"] == "CustomResourceDefinition":
                kubectl.apply(item, "--server-side")
    for piece, items, why in listed:
        if why:
            rows.append(Row(piece, "", why))
        for item in items:
            metadata = item.get("metadata") or {}
            name = metadata.get("name") or metadata.get("generateName") or ""
            options = ["--server-side", "--force-conflicts"] if item["kind"] == "CustomResourceDefinition" else []
            rows.append(Row(piece, f"{item['kind']} {name}".strip(), kubectl.apply(item, *options)))
    return rows


def policed(kubectl: Kubectl, row: Row) -> Row:
    """Return a row with what the policies say of its pod or quota."""
    if row.refused or not row.object.startswith(("Pod ", "ElasticQuota ")):
        return row
    (item,) = objects(row.piece)[0]
    item["metadata"]["name"] = f"{item['metadata'].get('name', 'x')}-again"
    return replace(row, policed=kubectl.apply(item, "--dry-run=server"))


def prepared(kubectl: Kubectl) -> None:
    """Install custom resource definitions and priority classes."""
    for path in sorted((ROOT / "deploy/crds").glob("*.yaml")):
        refused = kubectl.run("create", "-f", str(path))
        if refused:
            raise SystemExit(f"{path}: {refused}")
    for name, value in BANDS.items():
        scheduling = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        kubectl.run("create", "-f", "-", document={**scheduling, "value": value})
    wait_for(lambda: not kubectl.run("get", "elasticquotas,reservations,clustercolocationprofiles,devices"))


def guarded(kubectl: Kubectl) -> None:
    """Install the admission policies, and wait until they are in effect."""
    for document in documents({"policies": dict.fromkeys(POLICIES, True)}):
        if document["kind"].startswith("ValidatingAdmission"):
            kubectl.apply(document)
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "default", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }
    wait_for(lambda: "cannot be used together" in kubectl.apply(probe, "--dry-run=server"))


def reason(text: str) -> str:
    """Return a refusal without the server's preamble, short enough for a table."""
    text = re.sub(
        r'^(error: |Error from server[^:]*: )|error when creating "STDIN": | from "STDIN":| "STDIN":', " ", text
    )
    return textwrap.shorten(text.replace("|", "/").replace("<", "(").replace(">", ")"), 160, placeholder=" ...")


def print_tables(rows: list[Row]) -> None:
    """Print what was applied, what was refused, and pieces without an object, as Markdown."""
    applied = [row for row in rows if row.object and not row.refused]
    refused = [row for row in rows if row.object and row.refused]
    print(f"## Applied unchanged ({len(applied)})\n\n| where | object | with the policies |\n|---|---|---|")
    for row in applied:
        print(f"| {row.piece.where} | {row.object} | {reason(row.policed) or 'applied'} |")
    print(f"\n## Refused ({len(refused)})\n\n| where | object | reason |\n|---|---|---|")
    for row in refused:
        print(f"| {row.piece.where} | {row.object} | {reason(row.refused)} |")
    print("\n## No objects\n\n| where | pieces | why |\n|---|---|---|")
    counted: dict[tuple[str, str], int] = {}
    for row in rows:
        if not row.object:
            key = row.piece.where.partition(" #")[0], row.refused.partition(":")[0]
            counted[key] = counted.get(key, 0) + 1
    for (where, why), count in counted.items():
        print(f"| {where} | {count} | {why} |")


def main(arguments: list[str]) -> int:
    """Print tables of all pieces."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    found = [piece for each in arguments for piece in pieces(each.partition("=")[0], Path(each.partition("=")[2]))]
    with tempfile.TemporaryDirectory() as folder, apiserver.running(assets, Path(folder)) as kubeconfig:
        kubectl = Kubectl(assets, kubeconfig)
        prepared(kubectl)
        rows = tried(kubectl, found)
        guarded(kubectl)
        print_tables([policed(kubectl, row) for row in rows])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
