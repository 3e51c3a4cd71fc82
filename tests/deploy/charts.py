"""The chart's renderer as a module, and Helm itself where this machine has it."""

import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def load_renderer() -> ModuleType:
    """Return deploy/render.py, which is a script."""
    spec = importlib.util.spec_from_file_location("koord_render", ROOT / "deploy" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


renderer = load_renderer()


def documents(values: Mapping[str, Any] | None = None, *, hooks: bool = False) -> list[dict[str, Any]]:
    """Return every object that the chart installs, or with `hooks` every object of it."""
    texts = (renderer.rendered(values) if hooks else renderer.installed(values)).values()
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def one(kind: str, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = (document for document in documents(values) if document["kind"] == kind)
    return found


def helm_documents(values: Mapping[str, Any], values_file: Path) -> list[dict[str, Any]] | None:
    """Return the same by Helm: its program, or its library for Python; None where neither is here."""
    chart, namespace = str(renderer.CHART), renderer.NAMESPACE
    values_file.write_text(yaml.safe_dump(dict(values)))
    if shutil.which("helm"):
        command = ["helm", "template", "koord", chart, "--namespace", namespace, "--values", str(values_file)]
        texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout]
    elif importlib.util.find_spec("helm_python"):
        import helm_python

        with helm_python.Chart.load(chart) as loaded:
            texts = list(loaded.render(dict(values), name="koord", namespace=namespace).values())
    else:
        return None
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def container_image(workload: Mapping[str, Any]) -> str:
    """Return the image of a workload's only container."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return str(container["image"])
