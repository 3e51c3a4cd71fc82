"""The profiles: the plugins that run for the pods of a scheduler's name, their order, weights and settings.

All profiles share nodes, queue and plugins: what has the same settings in two profiles is one plugin. A plugin that
does more than filter and score keeps one state for the whole cluster, so its settings are the same wherever it is on.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import msgspec

import scheduler.plugins
from api.plugin import PluginError, discover
from api.protocol import SCHEDULER_NAME
from api.settings import SettingsError, convert
from scheduler.framework import Handle, NoConfig, Plugin

LeftOut = Literal["filter", "score", "post_filter"]
"""Points that a profile may leave out of a plugin that is on."""

STATELESS = frozenset(
    {"prepare", "reasons", "filter", "avoid", "score", "normalize", "pre_score", "pre_filter", "post_filter"}
)
"""Points whose definers may have other settings in each profile, together with those that observe."""

OBSERVING = frozenset(
    {"node_changed", "node_removed", "pod_added", "pod_removed", "on_object", "queue_hint", "routes", "tick"}
)


class ProfileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A further profile."""

    scheduler_name: Annotated[str, msgspec.Meta(min_length=1)]
    """Pods with this `spec.schedulerName` are placed by this profile."""
    plugins: dict[str, dict[str, Any]] = {}
    """As in the settings of the first profile, on which these are not laid."""


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduler's settings file. Every default is here or in the plugin's `Config`."""

    scheduler_name: str = SCHEDULER_NAME
    """Pods with this `spec.schedulerName` are ours."""
    plugins: dict[str, dict[str, Any]] = {}
    """One table per plugin, by module or entry point: `enabled`, `weight`, `without` (points of `LeftOut`), and the
    keys of the plugin's `Config`."""
    profiles: tuple[ProfileSettings, ...] = ()
    """Further profiles, for pods with other names of schedulers."""
    backoff_initial_seconds: float = 1.0
    """Wait after the first failed attempt; doubles with each."""
    backoff_max_seconds: float = 10.0
    """Longest wait between attempts."""
    unschedulable_flush_seconds: float = 300.0
    """A pod no event speaks for is tried again after this long."""
    scheduling_timeout_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """An attempt that takes longer, with the wait at Permit and the binding, is logged and counted; 0 is off."""
    bind_workers: int = 16
    """Bindings in flight at once."""
    extender_scheduler_names: tuple[str, ...] = ()
    """Schedulers that use the HTTP extender; only their pods are bound through it. Empty switches it off."""
    extender_waiting_binds: Annotated[int, msgspec.Meta(ge=1)] = 512
    """Requests to bind that may wait at once: members of gangs that are not whole yet. Each holds a connection, and no
    gang may have more members; further ones are refused, so that `filter` is always answered."""
    seed: int = 0
    """Seed of the draw among equally good nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Enabled:
    """A running plugin, its key in the settings (module or entry point) and the weight of its score."""

    key: str
    plugin: Plugin[Any]
    weight: int
    without: frozenset[str] = frozenset()
    """Points of `LeftOut` that the profile does not ask."""


class Profiles:
    """The enabled plugins by scheduler name; pods of other names are placed by the first profile."""

    def __init__(self, by_name: Mapping[str, Sequence[Enabled]]) -> None:
        self._by_name = by_name
        self.first = next(iter(by_name.values()))
        """Plugins of the first profile, in rank order."""
        instances = {id(entry.plugin): entry for enabled in by_name.values() for entry in enabled}
        self.plugins = [
            entry.plugin for entry in sorted(instances.values(), key=lambda entry: (entry.plugin.rank, entry.key))
        ]
        """Every plugin of some profile, in rank order."""
        self._named: dict[str, list[Plugin[Any]]] = {}
        for plugin in self.plugins:
            self._named.setdefault(plugin.name, []).append(plugin)
        self._members = {name: frozenset(id(entry.plugin) for entry in enabled) for name, enabled in by_name.items()}

    def __contains__(self, scheduler_name: str) -> bool:
        return scheduler_name in self._by_name

    def of(self, scheduler_name: str) -> Sequence[Enabled]:
        """Return the plugins of a profile, in rank order."""
        return self._by_name.get(scheduler_name, self.first)

    def runs(self, plugin: Plugin[Any], scheduler_name: str) -> bool:
        """Return whether the plugin is on for pods of this name."""
        members = self._members.get(scheduler_name)
        return members is None or id(plugin) in members

    def named(self, name: str) -> Sequence[Plugin[Any]]:
        """Return the plugins of a name: one for each setting of it."""
        return self._named[name]


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
) -> Profiles:
    """Construct the enabled plugins of `kinds` (all) and let them observe the snapshot.

    Raises SettingsError naming profile, plugin and key.
    """
    kinds = _available(source) if kinds is None else kinds
    made: list[_Made] = []
    first = ProfileSettings(settings.scheduler_name, settings.plugins)
    profiles: dict[str, list[Enabled]] = {}
    for profile in (first, *settings.profiles):
        where = source if profile is first else f"{source}: profile {profile.scheduler_name}"
        if profile.scheduler_name in profiles:
            raise SettingsError(where, "scheduler_name", "another profile has this name")
        profiles[profile.scheduler_name] = _profile(profile, kinds, handle, made, where)
    found = Profiles(profiles)
    handle.snapshot.node_observers.extend(p for p in found.plugins if _defines(p, "node_changed", "node_removed"))
    handle.snapshot.pod_observers.extend(p for p in found.plugins if _defines(p, "pod_added", "pod_removed"))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    key: str
    config: Any
    plugin: Plugin[Any]


def _profile(
    profile: ProfileSettings,
    kinds: dict[str, type[Plugin[Any]]],
    handle: Handle,
    made: list[_Made],
    source: str,
) -> list[Enabled]:
    for key in profile.plugins:
        if key not in kinds:
            known = ", ".join(sorted(kinds))
            raise SettingsError(source, f"[plugins.{key}]", f"no such plugin; there are {known}")
    enabled: list[Enabled] = []
    for key, kind in sorted(kinds.items(), key=lambda item: (item[1].rank, item[0])):
        table = dict(profile.plugins.get(key, {}))
        if not table.pop("enabled", kind.enabled):
            continue
        for other in enabled:
            if other.plugin.name == kind.name:
                problem = f"the name {kind.name!r} is that of plugin {other.key}; disable one of the two"
                raise SettingsError(source, f"[plugins.{key}]", problem)
        weight = table.pop("weight", kind.weight)
        without = frozenset(table.pop("without", ()))
        if not without <= set(get_args(LeftOut)):
            problem = f"expected some of {', '.join(get_args(LeftOut))}"
            raise SettingsError(source, f"[plugins.{key}] without", problem)
        config = convert(table, config_type(kind), f"{source}: [plugins.{key}]")
        enabled.append(Enabled(key, _instance(key, kind, config, handle, made, source), weight, without))
    return enabled


def _instance(
    key: str, kind: type[Plugin[Any]], config: Any, handle: Handle, made: list[_Made], source: str
) -> Plugin[Any]:
    """Return the plugin with these settings, made at the first profile that has it."""
    for known in made:
        if known.key == key and known.config == config:
            return known.plugin
        if known.key == key and not _stateless(kind):
            problem = "its settings must be the same in all profiles: it keeps one state for the cluster"
            raise SettingsError(source, f"[plugins.{key}]", problem)
    plugin = kind(config, handle)
    made.append(_Made(key, config, plugin))
    return plugin


def _stateless(kind: type[Plugin[Any]]) -> bool:
    points = [name for name, value in vars(Plugin).items() if inspect.isfunction(value) and not name.startswith("_")]
    own = {name for name in points if getattr(kind, name) is not getattr(Plugin, name)}
    return own <= STATELESS | OBSERVING


def _available(source: str) -> dict[str, type[Plugin[Any]]]:
    try:
        return available()
    except PluginError as error:
        raise SettingsError(source, "[plugins]", str(error)) from error


def _defines(plugin: Plugin[Any], *points: str) -> bool:
    return any(getattr(type(plugin), point) is not getattr(Plugin, point) for point in points)
