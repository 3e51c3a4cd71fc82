"""docs/settings.md: every key of every program's settings, from the types that read the files and their docstrings."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeGuard

import msgspec
from msgspec import inspect as types

import controllers.plans
import scheduler.plugins
from api.plugin import discover
from controllers.runtime.controller import Controller
from controllers.runtime.settings import ManagerSettings
from controllers.yarn.settings import CopilotSettings
from koordlet.config import AgentSettings
from koordlet.runtime_proxy.settings import ProxySettings
from scheduler.framework import Plugin
from scheduler.profile import SchedulerSettings, config_type

_HEAD = """# Settings

Made from the types that read the settings, by `make docs`; a test keeps it true.

A settings file is TOML or YAML (`--config FILE`). Those of the agent are TOML, and files of the folder `FILE.d` go over
it, in the order of their names. A key that is not here, a value of another type or out of its range is refused with
file, table and key. In the chart the values `koordlet.settings`, `manager.settings` and so on are these files
(`docs/deploying.md`); options of commands are in their `--help`. The descheduler's file is that of upstream:
`docs/descheduler.md`.
"""
_LISTS = (types.VarTupleType, types.ListType, types.SetType, types.FrozenSetType)
_NUMBERS = (types.IntType, types.FloatType)
_NAMES: Mapping[type[types.Type], str] = {
    types.BoolType: "true or false",
    types.StrType: "text",
    types.AnyType: "any",
    types.NoneType: "unset",
}


def settings_page() -> str:
    """Return the page."""
    plans = discover(controllers.plans, Controller)  # type: ignore[type-abstract]
    plugins = discover(scheduler.plugins, Plugin)  # type: ignore[type-abstract]
    parts = [
        _HEAD,
        _program("koordlet", "/etc/koord/koordlet.toml where Koord is installed", AgentSettings),
        _program("koord-manager", "", ManagerSettings),
        *(_table(f"[controllers.{name}]", kind.settings_type) for name, kind in sorted(plans.items())),
        _program("koord-scheduler", "", SchedulerSettings),
        *(_table(f"[plugins.{name}]", config_type(kind)) for name, kind in sorted(plugins.items())),
        _program("koord-yarn-copilot", "", CopilotSettings),
        _program("koord-runtime-proxy", "", ProxySettings),
    ]
    return "".join(parts)


def _program(name: str, place: str, root: type[msgspec.Struct]) -> str:
    where = f" (`{place.split(' ')[0]}` {' '.join(place.split(' ')[1:])})" if place else ""
    return f"\n## {name}{where}\n" + _table("", root)


def _table(title: str, kind: type[msgspec.Struct]) -> str:
    """A table of settings and those within it."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    said = _meanings(kind)
    about = re.sub(r"^(?:Table )?`?\[+[\w.]+\]+`?: *", "", inspect.cleandoc(kind.__doc__ or "")).partition("\n\n")[0]
    rows, within = [], []
    for field in info.fields:
        inner = _tables_in(field.type)
        if inner:
            within += [_table(_title(title, field.encode_name, shape), found) for shape, found in inner]
        else:
            default = _default(field)
            meaning = said.get(field.name, "")
            rows.append(f"| `{field.encode_name}` | {_type(field.type)} | {default} | {meaning} |\n")
    head = f"\n### {title}\n" if title else ""
    sentence = f"\n{_line(about[:1].upper() + about[1:])}\n" if title and about else ""
    table = f"\n| key | value | default | meaning |\n|---|---|---|---|\n{''.join(rows)}"
    return (head + sentence + table if rows else "") + "".join(within)


def _tables_in(kind: types.Type) -> list[tuple[str, type[msgspec.Struct]]]:
    """Tables that a field holds, and how its name is written: `{}` a table, `[{}]` several, `{}.NAME` by name."""
    if _is_table(kind):
        return [("{}", kind.cls)]
    if isinstance(kind, _LISTS) and _is_table(kind.item_type):
        return [("[{}]", kind.item_type.cls)]
    if isinstance(kind, types.DictType) and _is_table(kind.value_type):
        return [("{}.NAME", kind.value_type.cls)]
    return []


def _is_table(kind: types.Type) -> TypeGuard[types.StructType]:
    """Objects of the API are told by their name alone."""
    return isinstance(kind, types.StructType) and not kind.cls.__module__.startswith("api.")


def _title(outer: str, name: str, shape: str) -> str:
    path = f"{outer.strip('[]')}.{name}" if outer else name
    return f"[{shape.format(path)}]"


def _type(kind: types.Type) -> str:
    if isinstance(kind, _NUMBERS):
        word = "whole number" if isinstance(kind, types.IntType) else "number"
        low, high = (_number(end) if end is not None else None for end in (kind.ge, kind.le))
        over = f"above {_number(kind.gt)}" if kind.gt is not None else f"at least {low}" if low is not None else ""
        if low is not None and high is not None:
            return f"{low} to {high}"
        under = f"at most {high}" if high is not None else ""
        bounds = ", ".join(filter(None, (over, under)))
        return f"{word}, {bounds}" if bounds else word
    if isinstance(kind, types.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, types.EnumType):
        return ", ".join(f"`{each.value}`" for each in kind.cls if each.value != "")
    if isinstance(kind, types.StructType):
        return f"`{kind.cls.__name__}`"
    if isinstance(kind, _LISTS):
        return f"list of {_type(kind.item_type)}"
    if isinstance(kind, types.DictType):
        return "table"
    if isinstance(kind, types.UnionType):
        return " or ".join(_type(each) for each in kind.types if not isinstance(each, types.NoneType))
    return _NAMES.get(type(kind), type(kind).__name__.removesuffix("Type").lower())


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(field: types.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        factory: Callable[[], Any] = field.default_factory
        value = factory()
    if value is None or value in ("", (), [], {}):
        return "-"
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    return f"`{_cell(text)}`"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else msgspec.to_builtins(value)


def _meanings(kind: type) -> dict[str, str]:
    """The docstrings below fields, of a class and of those that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.partition(".")[0] in ("builtins", "msgspec"):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef)
        found |= dict(_documented(body))
    return found


def _documented(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield field.target.id, _line(str(text.value.value))


def _line(text: str) -> str:
    return _cell(" ".join(text.split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
