"""The profile: the plugins that run, their order, weights and settings."""

import inspect
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

import scheduler.plugins
from api.plugin import PluginError, discover
from api.protocol import SCHEDULER_NAME
from api.settings import SettingsError, convert
from scheduler.framework import Handle, NoConfig, Plugin


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduler's settings file. Every default is here or in the plugin's `Config`."""

    scheduler_name: str = SCHEDULER_NAME
    """Pods with this `spec.schedulerName` are ours."""
    plugins: dict[str, dict[str, Any]] = {}
    """One table per plugin, by module or entry point: `enabled`, `weight`, and the keys of the plugin's `Config`."""
    backoff_initial_seconds: float = 1.0
    """Wait after the first failed attempt; doubles with each."""
    backoff_max_seconds: float = 10.0
    """Longest wait between attempts."""
    unschedulable_flush_seconds: float = 300.0
    """A pod no event speaks for is tried again after this long."""
    bind_workers: int = 16
    """Bindings in flight at once."""
    extender_scheduler_names: tuple[str, ...] = ()
    """Schedulers that use the HTTP extender; only their pods are bound through it. Empty switches it off."""
    seed: int = 0
    """Seed of the draw among equally good nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Enabled:
    """A running plugin, its key in the settings (module or entry point) and the weight of its score."""

    key: str
    plugin: Plugin[Any]
    weight: int


def available() -> dict[str, type[Plugin[Any]]]:
    """Every plugin by its key in the settings: module of `scheduler.plugins`, or installed entry point.

    Raises PluginError for an entry point that cannot serve as a plugin.
    """
    return discover(scheduler.plugins, Plugin, "koord.scheduler_plugins")


def config_type(plugin: type[Plugin[Any]]) -> type[Any]:
    """The `Config` in the plugin's module, or NoConfig."""
    kind = getattr(sys.modules[plugin.__module__], "Config", NoConfig)
    return kind if inspect.isclass(kind) else NoConfig


def build(
    settings: SchedulerSettings,
    handle: Handle,
    *,
    source: str = "settings",
    kinds: dict[str, type[Plugin[Any]]] | None = None,
) -> list[Enabled]:
    """Construct the enabled plugins of `kinds` (all) in rank order and let them observe the snapshot.

    Raises SettingsError naming plugin and key.
    """
    kinds = _available(source) if kinds is None else kinds
    for key in settings.plugins:
        if key not in kinds:
            known = ", ".join(sorted(kinds))
            raise SettingsError(source, f"[plugins.{key}]", f"no such plugin; there are {known}")
    enabled: list[Enabled] = []
    for key, kind in sorted(kinds.items(), key=lambda item: (item[1].rank, item[0])):
        table = dict(settings.plugins.get(key, {}))
        if not table.pop("enabled", kind.enabled):
            continue
        for other in enabled:
            if other.plugin.name == kind.name:
                problem = f"the name {kind.name!r} is that of plugin {other.key}; disable one of the two"
                raise SettingsError(source, f"[plugins.{key}]", problem)
        weight = table.pop("weight", kind.weight)
        config = convert(table, config_type(kind), f"{source}: [plugins.{key}]")
        enabled.append(Enabled(key, kind(config, handle), weight))
    plugins = [entry.plugin for entry in enabled]
    handle.snapshot.node_observers.extend(p for p in plugins if _defines(p, "node_changed", "node_removed"))
    handle.snapshot.pod_observers.extend(p for p in plugins if _defines(p, "pod_added", "pod_removed"))
    return enabled


def _available(source: str) -> dict[str, type[Plugin[Any]]]:
    try:
        return available()
    except PluginError as error:
        raise SettingsError(source, "[plugins]", str(error)) from error


def _defines(plugin: Plugin[Any], *points: str) -> bool:
    return any(getattr(type(plugin), point) is not getattr(Plugin, point) for point in points)
