"""Plugins are modules: one module, one plugin, named by its file.

Probes, collectors, symptoms, strategies and scheduler plugins are found the same way, so that adding one
costs its module and its test.
"""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


class Unsupported(Exception):
    """This host, kernel or cluster lacks what a plugin needs.

    `reason` says what is missing; `remedy` what a person can do about it (empty if nothing).
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def discover(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Map module name to the one concrete subclass of `base` that the module defines.

    Modules that define none are passed over (machinery beside plugins); more than one is a TypeError that
    names the module.
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
            raise TypeError(f"{module.__name__} defines more than one {base.__name__}: {names}")
        if classes:
            found[info.name] = classes[0]
    return found
