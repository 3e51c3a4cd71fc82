"""Render the chart to the plain manifests beside it, without Helm: `python deploy/render.py`.

The templates keep to a small part of Helm's language, so that this file can know all of it:

    {{ .Values.a.b }}  {{ .Release.Namespace }}  {{ .Chart.AppVersion }}  {{ .Files.Get "path" }}
    {{ toYaml .Values.a | nindent 8 }}  and the functions quote, nindent, replace, sha256sum
    {{ if .Values.a }} ... {{ else }} ... {{ end }}, {{ if not .Values.a }}, with {{- and -}} trimming white space

Anything else, and a value that is not set, is refused. tests/deploy compares the result with Helm's own where Helm is.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CHART = HERE / "chart"
MANIFESTS = HERE / "manifests"
NAMESPACE = "koord-system"

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_PROLOGUE = f"""apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    # Agents share process ids and directories with their host.
    pod-security.kubernetes.io/enforce: privileged
"""


class TemplateError(Exception):
    """A template uses what this renderer does not know; the message names file and action."""


def rendered(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return the text of each template by its name, with `values` merged over the defaults."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": merged(yaml.safe_load((CHART / "values.yaml").read_text()), values or {}),
        "Release": {"Namespace": namespace},
        "Chart": {"Name": chart["name"], "AppVersion": chart["appVersion"], "Version": chart["version"]},
    }
    return {path.name: render(path.read_text(), scope, path.name) for path in sorted(CHART.glob("templates/*.yaml"))}


def is_hook(text: str) -> bool:
    """Return whether a rendered template is for Helm to run at a moment of its own, and not to be installed."""
    return "helm.sh/hook:" in text


def installed(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return the templates that an installation makes."""
    texts = rendered(values, namespace)
    return {name: text for name, text in texts.items() if text.strip() and not is_hook(text)}


def merged(defaults: Any, values: Any) -> Any:
    """Return `values` over `defaults`, table by table, as Helm merges them."""
    if not isinstance(defaults, Mapping) or not isinstance(values, Mapping):
        return values
    return {**defaults, **{key: merged(defaults.get(key), value) for key, value in values.items()}}


def render(template: str, scope: Mapping[str, Any], name: str) -> str:
    """Return a template's text. Raises TemplateError."""
    output: list[str] = []
    kept: list[bool] = []  # of each open `if`: whether its present branch is taken
    position, trims = 0, False
    for action in _ACTION.finditer(template):
        text = template[position : action.start()]
        text = text.lstrip() if trims else text
        text = text.rstrip() if action[1] else text
        if all(kept):
            output.append(text)
        position, trims = action.end(), bool(action[3])
        words = _WORD.findall(action[2])
        match words:
            case ["if", *condition]:
                kept.append(bool(evaluated(condition, scope, name)) if all(kept) else False)
            case ["else"] if kept:
                kept[-1] = not kept[-1] if all(kept[:-1]) else False
            case ["end"] if kept:
                kept.pop()
            case [] | ["else" | "end" | "range" | "with" | "define" | "template" | "block", *_]:
                raise TemplateError(f"{name}: {action[0]} is not known here")
            case _ if all(kept):
                output.append(_text(evaluated(words, scope, name)))
    if kept:
        raise TemplateError(f"{name}: an `if` has no `end`")
    rest = template[position:]
    return "".join([*output, rest.lstrip() if trims else rest])


def evaluated(words: list[str], scope: Mapping[str, Any], name: str) -> Any:
    """Return the value of a pipeline. Raises TemplateError."""
    value: Any = None
    for number, stage in enumerate(_stages(words)):
        if number == 0 and stage[0].startswith(".") and stage[0] != ".Files.Get":
            if len(stage) != 1:
                raise TemplateError(f"{name}: {' '.join(stage)} is not known here")
            value = _looked_up(stage[0], scope, name)
            continue
        function = _FUNCTIONS.get(stage[0])
        if function is None:
            raise TemplateError(f"{name}: {stage[0]} is not known here")
        arguments = [_operand(word, scope, name) for word in stage[1:]]
        value = function(*arguments, *([value] if number else []))
    return value


def _stages(words: list[str]) -> list[list[str]]:
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    if not all(stages):
        raise TemplateError(f"an empty stage in {' '.join(words)}")
    return stages


def _operand(word: str, scope: Mapping[str, Any], name: str) -> Any:
    if word.startswith("."):
        return _looked_up(word, scope, name)
    if word.startswith('"') or word.isdigit():
        return json.loads(word)
    raise TemplateError(f"{name}: {word} is not known here")


def _looked_up(path: str, scope: Mapping[str, Any], name: str) -> Any:
    value: Any = scope
    for part in path[1:].split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise TemplateError(f"{name}: {path} is not set")
        value = value[part]
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=True, width=1000).removesuffix("\n").removesuffix("\n...")


def _nindent(width: int, text: str) -> str:
    return "".join(f"\n{' ' * width}{line}" for line in text.split("\n"))


def _file(path: str) -> str:
    return (CHART / path).read_text()


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "toYaml": _to_yaml,
    "nindent": _nindent,
    "not": lambda value: not value,
    "quote": lambda value: json.dumps(_text(value)),
    "replace": lambda old, new, text: text.replace(old, new),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    ".Files.Get": _file,
}


def manifests() -> dict[Path, str]:
    """Return the plain manifests by their path, as they stand in the tree."""
    heading = "# Rendered from deploy/chart by deploy/render.py; edit the chart instead.\n"
    found = {MANIFESTS / "00-namespace.yaml": heading + _PROLOGUE}
    return found | {MANIFESTS / name: heading + text for name, text in installed().items()}


def main(arguments: list[str]) -> int:
    """Write the manifests, or with --values print what other values give."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=Path, help="a file of values; prints the manifests instead of writing them")
    parser.add_argument("--uninstall", action="store_true", help="print what restores every node before a removal")
    parser.add_argument("--namespace", default=NAMESPACE)
    options = parser.parse_args(arguments)
    if options.values or options.uninstall:
        values = yaml.safe_load(options.values.read_text()) if options.values else {}
        texts = installed(values, options.namespace)
        if options.uninstall:
            texts = {name: text for name, text in rendered(values, options.namespace).items() if is_hook(text)}
        sys.stdout.write("---\n".join(texts.values()))
        return 0
    wanted = manifests()
    for stale in set(MANIFESTS.glob("*.yaml")) - wanted.keys():
        stale.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
