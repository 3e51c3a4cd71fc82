"""Watched objects beside nodes and pods, by kind, for the plugins that need them."""

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.resources import Key, Resource
from scheduler.cycle import AnyPlugin
from scheduler.framework import Action, ObjectEvent


class WatchedObjects:
    """Objects of the kinds that plugins watch; forwards every change to those plugins."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Any]] = {}
        self._plugins: dict[str, list[AnyPlugin]] = {}
        self.kinds: dict[str, Resource[Any]] = {}
        """Every kind that some plugin needs, by name."""

    def register(self, plugins: Iterable[AnyPlugin]) -> None:
        """Register the kinds that these plugins watch."""
        for plugin in plugins:
            for kind in plugin.watches:
                self.kinds[kind_name(kind)] = kind
                self._plugins.setdefault(kind_name(kind), []).append(plugin)

    def objects(self, kind: Resource[Any]) -> Mapping[Key, Any]:
        """The objects of a kind."""
        return self._objects.setdefault(kind_name(kind), {})

    def apply(self, event: ObjectEvent) -> None:
        """Apply a change and forward it to the plugins."""
        name = kind_name(event.resource)
        store = self._objects.setdefault(name, {})
        if event.action is Action.DELETE:
            store.pop(event.key, None)
        else:
            store[event.key] = event.after
        for plugin in self._plugins.get(name, ()):
            plugin.on_object(event)


def kind_name(kind: Resource[Any]) -> str:
    """`plural`, or `plural.group` of kinds outside the core group."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def listeners(plugins: Iterable[AnyPlugin]) -> dict[str, frozenset[str]]:
    """Event kind to the names of the plugins that listen to it."""
    table: dict[str, set[str]] = {}
    for plugin in plugins:
        for kind in plugin.requeue_on:
            table.setdefault(kind, set()).add(plugin.name)
    return {kind: frozenset(names) for kind, names in table.items()}
