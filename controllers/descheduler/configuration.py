"""Koordinator's DeschedulerConfiguration and upstream's DeschedulerPolicy, as they stand in their files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

import controllers.descheduler.plugins
from api.kube.meta import LabelSelector
from api.kube.selectors import SelectorError, parse_label_selector
from api.kube.times import duration_seconds
from api.plugin import discover
from api.settings import SettingsError, convert
from cluster.resources import Resource
from controllers.descheduler.eviction_filter import GATES, FilterArgs
from controllers.descheduler.kinds import WORKLOADS, AnyWorkload, ScalePaths, WorkloadObject, scaled_by
from controllers.descheduler.plugin import AnyPlugin, Plugin, Point
from controllers.migration.settings import MigrationArgs

Count = Annotated[int, msgspec.Meta(ge=0)]
EVICTORS = ("MigrationController", "DefaultEvictor")
GROUP = "koord.descheduler_plugins"
"""Entry points of plugins outside this project."""


class NamedPlugin(msgspec.Struct, frozen=True):
    """A plugin by name."""

    name: str


class PluginSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plugins of an extension point; upstream writes names, Koordinator objects with a name."""

    enabled: list[str | NamedPlugin] = []
    disabled: list[str | NamedPlugin] = []

    @property
    def names(self) -> list[str]:
        """Names of the plugins to run, in order."""
        off = {_name(each) for each in self.disabled}
        return [] if "*" in off else [name for each in self.enabled if (name := _name(each)) not in off]


def _name(stated: str | NamedPlugin) -> str:
    return stated if isinstance(stated, str) else stated.name


class PluginConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a plugin."""

    name: str
    args: dict[str, Any] = {}


class Plugins(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Plugins by extension point; the last four choose the evictor, of which there is one here."""

    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()


class Profile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Plugins with their arguments, for a part of the nodes."""

    name: str = "koord-descheduler"
    node_selector: LabelSelector | None = None
    plugin_config: list[PluginConfig] = []
    plugins: Plugins = Plugins()


class WorkloadKind(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A kind that owns pods and has a scale subresource, with the paths that its definition states for it."""

    api_version: str
    kind: str
    resource: str
    """Its plural name in requests."""
    spec_replicas_path: str = ".spec.replicas"
    status_replicas_path: str = ".status.replicas"

    def __post_init__(self) -> None:
        for path, top in ((self.spec_replicas_path, "spec"), (self.status_replicas_path, "status")):
            if not re.fullmatch(rf"\.{top}(\.[\w-]+)+", path):
                raise ValueError(f"{top}ReplicasPath: {path} is no path like .{top}.replicas")

    @property
    def objects(self) -> type[AnyWorkload]:
        """The type that its objects are read as."""
        paths = ScalePaths(self.spec_replicas_path, self.status_replicas_path)
        return WorkloadObject if paths == ScalePaths() else scaled_by(paths)


class DeschedulerConfiguration(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The file. Keys that concern Koordinator's own process (client, ports, profiling) are read without effect."""

    api_version: Literal["", "descheduler/v1alpha2"] = ""
    kind: Literal["", "DeschedulerConfiguration", "DeschedulerPolicy"] = ""
    descheduling_interval: str = "2m"
    dry_run: bool = False
    """Say what would be moved, and move nothing."""
    paused: bool = False
    """Start no moves; those under way end."""
    approval: Literal["Automatic", "Manual"] = "Automatic"
    """With Manual a move waits for its job's annotation `descheduler.koordinator.sh/approved: "true"`."""
    node_selector: LabelSelector | str | None = None
    max_no_of_pods_to_evict_per_node: Count | None = None
    max_no_of_pods_to_evict_per_namespace: Count | None = None
    max_no_of_pods_to_evict_total: Count | None = None
    max_no_of_pods_to_evict_per_minute: Count | None = 10
    """Of all profiles and cycles together; not in Koordinator."""
    workload_kinds: list[WorkloadKind] = []
    """Kinds besides the known ones; the account must be allowed to list and watch them. Not in Koordinator."""
    profiles: list[Profile] = []
    client_connection: dict[str, Any] = {}
    leader_election: dict[str, Any] = {}
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    metrics_cardinality: str = ""

    @property
    def selector(self) -> LabelSelector | None:
        """The nodes that all profiles look at."""
        stated = self.node_selector
        return parse_label_selector(stated) if isinstance(stated, str) else stated

    @property
    def workloads(self) -> tuple[Resource[Any], ...]:
        """All kinds of workloads."""
        return (
            *WORKLOADS,
            *(
                Resource(each.kind, each.resource, each.objects, *_group_version(each.api_version))
                for each in self.workload_kinds
            ),
        )

    @property
    def interval_seconds(self) -> float:
        """Time between two cycles."""
        return duration_seconds(self.descheduling_interval) or 120.0


@dataclass(frozen=True, slots=True)
class BuiltProfile:
    """A profile with its plugins, ready to run."""

    name: str
    node_selector: LabelSelector | None
    filter_args: FilterArgs
    migration: MigrationArgs
    plugins: Sequence[AnyPlugin]


def _group_version(text: str) -> tuple[str, str]:
    group, _, version = text.rpartition("/")
    return group, version


def plugin_types() -> dict[str, type[AnyPlugin]]:
    """Return all plugins by name. Raises PluginError."""
    found = discover(controllers.descheduler.plugins, Plugin, GROUP)  # type: ignore[type-abstract]
    return {kind.name: kind for kind in found.values()}


def build(configuration: DeschedulerConfiguration, source: str) -> list[BuiltProfile]:
    """Return the profiles. Raises SettingsError for plugins that are not known, and arguments that do not fit."""
    if duration_seconds(configuration.descheduling_interval) is None:
        raise SettingsError(source, "deschedulingInterval", "expected a duration such as 2m")
    try:
        configuration.selector  # noqa: B018 - read for its refusal
    except SelectorError as error:
        raise SettingsError(source, "nodeSelector", str(error)) from None
    known = plugin_types()
    return [_built(profile, known, source) for profile in configuration.profiles]


def _built(profile: Profile, known: Mapping[str, type[AnyPlugin]], source: str) -> BuiltProfile:
    where = f"{source}: profile {profile.name}"
    args: dict[str, dict[str, Any]] = {}
    for each in profile.plugin_config:
        if each.name not in known and each.name not in EVICTORS:
            raise SettingsError(
                where, f"pluginConfig {each.name}", f"no such plugin; there are {', '.join(sorted(known))}"
            )
        args[each.name] = each.args
    plugins: list[AnyPlugin] = []
    for point, chosen in ((Point.DESCHEDULE, profile.plugins.deschedule), (Point.BALANCE, profile.plugins.balance)):
        for name in chosen.names:
            kind = known.get(name)
            if kind is None:
                raise SettingsError(
                    where, f"plugins.{point}", f"no plugin {name}; there are {', '.join(sorted(known))}"
                )
            if kind.point is not point:
                raise SettingsError(where, f"plugins.{point}", f"{name} belongs to {kind.point}")
            plugins.append(kind(convert(args.get(name, {}), kind.args_type, f"{where}: {name}")))
    merged = {**_without_kind(args.get("DefaultEvictor", {})), **_without_kind(args.get("MigrationController", {}))}
    migration = convert(merged, MigrationArgs, f"{where}: MigrationController")
    threshold = migration.priority_threshold
    if threshold is not None and threshold.name and threshold.value is None:
        raise SettingsError(
            where, "priorityThreshold.name", "give the value of that PriorityClass as priorityThreshold.value"
        )
    for gate in migration.skip_eviction_gates:
        if gate not in GATES:
            raise SettingsError(where, "skipEvictionGates", f"no gate {gate}; there are {', '.join(sorted(GATES))}")
    return BuiltProfile(profile.name, profile.node_selector, migration, migration, plugins)


def _without_kind(args: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
