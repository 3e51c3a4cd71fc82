"""Settings of the strategies from a NodeSLO's spec, from the cluster or a file: checked, merged over the defaults."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from api.crds.node_slo import NodeSLOSpec
from api.settings import SettingsError, convert, merge
from koordlet.strategies.strategy import EXTENSIONS, Strategy, StrategySettings, discover_strategies, settings_path
from koordlet.strategies.view import Group

S = TypeVar("S", bound=StrategySettings)


def settings_of(kind: type[S], section: str, spec: Mapping[str, Any], source: str) -> S:
    """Return the settings of one strategy: its section of `spec` over the defaults; null counts as absent.

    Raises SettingsError naming the key, what is wrong and what would be right.
    """
    table: Any = spec
    for part in section.split("."):
        table = table.get(part) or {}
        if not isinstance(table, Mapping):
            raise SettingsError(source, section, f"must be a table of settings; {part} is not")
    return _over_defaults(kind, _without_nulls(table), f"{source}: {section}")


def overridden(settings: S, text: str, source: str) -> S:
    """Return `settings` with the fields of a JSON object merged over them, as pods carry it in annotations.

    Raises SettingsError naming the annotation.
    """
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise SettingsError(source, "", f"not a JSON object: {error}") from error
    merged = merge(msgspec.to_builtins(settings), _without_nulls(document))
    return _converted(type(settings), merged, source)


def read_annotation(pod: Group, key: str, default: S, problems: dict[str, str]) -> S:
    """Return `default` with the pod's annotation merged over it; one that cannot be used is noted and ignored."""
    text = pod.annotations.get(key)
    if text is None:
        return default
    try:
        return overridden(default, text, f"{pod.name}: {key}")
    except SettingsError as error:
        problems[pod.path] = str(error)
        return default


def configure(strategies: Mapping[str, Strategy[Any]], spec: Mapping[str, Any], source: str) -> list[SettingsError]:
    """Give each strategy its settings out of `spec`; one whose settings are refused keeps its present ones.

    Returns what was refused, keys unknown to the strategies and to the protocol included.
    """
    refused = [SettingsError(source, key, "unknown key; see docs/strategies.md") for key in unknown_keys(spec)]
    for name in sorted(strategies):
        strategy = strategies[name]
        try:
            strategy.settings = settings_of(strategy.settings_type, strategy.settings_path, spec, source)
        except SettingsError as error:
            refused.append(error)
    return refused


def unknown_keys(spec: Mapping[str, Any]) -> list[str]:
    """Return the keys of a spec, dotted, that neither the protocol nor a strategy's extension knows.

    Other programs may keep extensions of their own, so an unknown extension is reported only if it looks like a typing
    error.
    """
    known = dict(spec)
    extensions = known.pop(EXTENSIONS, None) or {}
    found = _unknown(known, inspect.type_info(NodeSLOSpec), "")
    prefix = f"{EXTENSIONS}."
    paths = {settings_path(name, kind): kind.settings_type for name, kind in discover_strategies().items()}
    extensions_known = {path.removeprefix(prefix): kind for path, kind in paths.items() if path.startswith(prefix)}
    for name, table in extensions.items():
        if name in extensions_known:
            found += _unknown(table, inspect.type_info(extensions_known[name]), f"{prefix}{name}.")
        elif get_close_matches(name.lower(), [own.lower() for own in extensions_known], cutoff=0.8):
            found.append(f"{prefix}{name}")
    return found


def _unknown(document: Any, kind: inspect.Type, prefix: str) -> list[str]:
    if isinstance(kind, inspect.Metadata):
        return _unknown(document, kind.type, prefix)
    if isinstance(kind, inspect.UnionType):
        structs = [item for item in kind.types if isinstance(item, inspect.StructType)]
        return _unknown(document, structs[0], prefix) if structs else []
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(document, list | tuple):
        return [key for item in document for key in _unknown(item, kind.item_type, prefix)]
    if isinstance(kind, inspect.DictType) and isinstance(document, Mapping):
        return [key for name, item in document.items() for key in _unknown(item, kind.value_type, f"{prefix}{name}.")]
    if not isinstance(kind, inspect.StructType) or not isinstance(document, Mapping):
        return []
    fields = {field.encode_name: field.type for field in kind.fields}
    found = [f"{prefix}{key}" for key in document if key not in fields]
    for key, value in document.items():
        found += _unknown(value, fields[key], f"{prefix}{key}.") if key in fields else []
    return found


def _without_nulls(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {key: _without_nulls(value) for key, value in document.items() if value is not None}
    return document


def _over_defaults(kind: type[S], table: dict[str, Any], source: str) -> S:
    return _converted(kind, merge(msgspec.to_builtins(kind()), table), source)


def _converted(kind: type[S], document: dict[str, Any], source: str) -> S:
    try:
        return convert(document, kind, source)
    except SettingsError as error:
        raise SettingsError(source, error.location, f"{error.problem}{_remedy(error)}") from error


def _remedy(error: SettingsError) -> str:
    if "got `float`" in error.problem and "ercent" in error.location:
        return "; a percent is a whole number such as 65, not a fraction"
    if error.problem.startswith("Expected"):
        return "; keep to the range in docs/strategies.md, or leave the key out for the default"
    return ""
