"""Plugins are modules: one module, one plugin, named by its file; or an entry point of an installed distribution.

Probes, collectors, symptoms, strategies and scheduler plugins are found the same way, so that adding one
costs its module and its test, and a plugin outside this project needs no fork of it (docs/extending.md).
"""

import importlib
import inspect
import pkgutil
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Unsupported(Exception):
    """This host, kernel or cluster lacks what a plugin needs.

    `reason` says what is missing; `remedy` what a person can do about it (empty if nothing).
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class PluginError(TypeError):
    """A module or an entry point that cannot serve as a plugin; the message names it and the remedy."""


def discover(package: ModuleType, base: type[T], group: str = "") -> dict[str, type[T]]:
    """Map plugin name to class: the modules of `package`, then the entry points of `group`.

    A module is named by its file and defines one concrete subclass of `base`; modules that define none are passed
    over. An entry point names its class as `module:Class`. Raises PluginError for a module that defines more than
    one, an entry point that cannot be loaded or names no such class, and a name that is taken.
    """
    found: dict[str, type[T]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        classes = [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if issubclass(member, base) and member.__module__ == module.__name__ and not inspect.isabstract(member)
        ]
        if len(classes) > 1:
            names = ", ".join(sorted(member.__name__ for member in classes))
            raise PluginError(f"{module.__name__} defines more than one {base.__name__}: {names}")
        if classes:
            found[info.name] = classes[0]
    for point in _installed(group) if group else ():
        if point.name in found:
            raise PluginError(f"{_origin(point)}: the name is taken by {found[point.name].__module__}; choose another")
        found[point.name] = _load(point, base)
    return found


@lru_cache(maxsize=16)
def _installed(group: str) -> "tuple[EntryPoint, ...]":
    """Entry points of a group by name; distributions are read once in the life of the process."""
    from importlib.metadata import entry_points  # slow to load, and no plugin is looked for by most that import this

    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def _load(point: "EntryPoint", base: type[T]) -> type[T]:
    try:
        loaded = point.load()
    except Exception as error:
        raise PluginError(f"{_origin(point)}: cannot be loaded ({error}); update or remove the distribution") from error
    if not inspect.isclass(loaded) or not issubclass(loaded, base) or inspect.isabstract(loaded):
        raise PluginError(f"{_origin(point)}: {point.value} is no concrete {base.__name__}")
    return loaded


def _origin(point: "EntryPoint") -> str:
    where = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"entry point {point.name!r} in {point.group}{where}"
