"""Settings text to frozen values: an unknown key, a wrong type or a value out of range is refused by name.

A program's settings are one frozen `msgspec.Struct` with `forbid_unknown_fields=True`; the default stands on
the field and `msgspec.Meta` carries range and documentation. TOML and YAML are read alike.
"""

import re
import tomllib
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class SettingsError(ValueError):
    """A settings text that cannot be used; the message names source, table, key and what is wrong."""

    def __init__(self, source: str, location: str, problem: str) -> None:
        where = f"{source}: {location}" if location else source
        super().__init__(f"{where}: {problem}")
        self.source = source
        self.location = location
        self.problem = problem


def parse(text: str, source: str) -> dict[str, Any]:
    """The plain document in `text`; YAML if `source` ends in .yaml or .yml, TOML otherwise.

    Raises SettingsError when the text is not valid TOML/YAML or not a table at the top.
    """
    try:
        if source.endswith((".yaml", ".yml")):
            document = msgspec.yaml.decode(text) if text.strip() else {}
        else:
            document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(source, "", f"not readable: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(source, "", "the top level must be a table of settings")
    return document


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, table by table; lists and plain values are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        present = merged.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merged[key] = merge(present, value)
        else:
            merged[key] = value
    return merged


def convert(document: dict[str, Any], kind: type[T], source: str) -> T:
    """Build the settings value of type `kind` from a plain document.

    Raises SettingsError naming the table and key of the first field that does not fit.
    """
    try:
        return msgspec.convert(document, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _named(source, str(error)) from error


def _named(source: str, message: str) -> SettingsError:
    """Turn msgspec's `... - at $.a.b`, or `... - at key in $.a.b`, into table, key and problem."""
    problem, _, path = message.partition(" - at `")
    path = path.removeprefix("key` in `")
    location = path.rstrip("`").removeprefix("$").lstrip(".")
    unknown = re.search(r"unknown field `([^`]+)`", problem)
    if unknown:
        key = unknown.group(1)
        table = f"[{location}] " if location else ""
        return SettingsError(source, f"{table}{key}", "unknown key; see --help or the settings reference")
    table, _, key = location.rpartition(".")
    where = f"[{table}] {key}" if table else key
    return SettingsError(source, where, problem)
