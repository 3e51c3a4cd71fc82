"""A KubeSchedulerConfiguration as settings: its profiles, and what it says of election and client.

Plugins of the stock scheduler run unless the file disables them; Koordinator's run where the file enables them at some
point; this project's own run unless the file disables them. Order is this scheduler's (`Plugin.rank`). What a file asks
for and is not carried out here is in `KubeConfiguration.notes`; what would place pods otherwise than asked is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from api.kube.times import duration_seconds
from api.settings import SettingsError, convert, parse
from scheduler.configuration.arguments import plugin_settings
from scheduler.framework import Plugin
from scheduler.profile import ProfileSettings, SchedulerSettings, available

KIND = "KubeSchedulerConfiguration"
STOCK_NAME = "default-scheduler"

KOORDINATOR = frozenset(
    {
        "Coscheduling",
        "DefaultPreBind",
        "DeviceShare",
        "ElasticQuota",
        "LoadAwareScheduling",
        "NodeNUMAResource",
        "NodeResourcesFitPlus",
        "Reservation",
        "ScarceResourceAvoidance",
        "SchedulingHint",
    }
)
"""Plugins that run only where a profile enables them."""

WITHIN = {
    "BatchResourceFit": "NodeResourcesFit",
    "VolumeZone": "VolumeBinding",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
    "AzureDiskLimits": "NodeVolumeLimits",
    "GangScheduling": "Coscheduling",
}
"""Plugins of the stock scheduler and of older Koordinator whose work another does here; "" has no counterpart."""

POINT_NAMES: dict[str, Literal["filter", "score", "post_filter"]] = {
    "filter": "filter",
    "score": "score",
    "post_filter": "post_filter",
}
"""Fields of `PluginPoints` that a profile may leave out of a plugin, and their names in the settings."""


ELSEWHERE = {("SchedulingHint", "filter"): "pre_filter"}
"""Points that a plugin has here and not upstream, and the point that does the same there."""


class NamedPlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plugin at a point; `weight` counts where it scores."""

    name: str
    weight: int = 0


class PluginSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plugins that a point gains and loses; `*` loses all that are there by default."""

    enabled: list[NamedPlugin] = []
    disabled: list[NamedPlugin] = []

    def keeps(self, name: str, *, default: bool) -> bool:
        """Return whether the plugin is at the point, where it is by default or not."""
        if any(each.name == name for each in self.enabled):
            return True
        return default and not any(each.name in (name, "*") for each in self.disabled)


class PluginPoints(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Plugins by extension point."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def items(self) -> Iterable[tuple[str, PluginSet]]:
        """Every point by field name."""
        return ((name, getattr(self, name)) for name in self.__struct_fields__)


class PluginArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a plugin."""

    name: str
    args: dict[str, Any] = {}


class KubeProfile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A profile of the file."""

    scheduler_name: str = STOCK_NAME
    percentage_of_nodes_to_score: int | None = None
    plugins: PluginPoints = PluginPoints()
    plugin_config: list[PluginArgs] = []


class LeaderElection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The lease to hold."""

    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to reach the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: int = 0


class Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The file, versions v1, v1beta3 and v1beta2 of the stock scheduler's group."""

    kind: Literal["KubeSchedulerConfiguration"]
    api_version: Literal[
        "kubescheduler.config.k8s.io/v1",
        "kubescheduler.config.k8s.io/v1beta3",
        "kubescheduler.config.k8s.io/v1beta2",
    ]
    profiles: list[KubeProfile] = []
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: list[dict[str, Any]] = []
    parallelism: int = 16
    percentage_of_nodes_to_score: int | None = None
    delay_cache_until_active: bool = False
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    health_bind_address: str = msgspec.field(name="healthzBindAddress", default="")
    metrics_bind_address: str = ""
    inflight_writes: int = msgspec.field(name="maxInFlightAPICalls", default=0)


@dataclass(frozen=True, slots=True)
class KubeConfiguration:
    """Settings that a KubeSchedulerConfiguration means."""

    settings: SchedulerSettings
    election: LeaderElection
    client: ClientConnection
    notes: list[str] = field(default_factory=list)
    """What the file asks for and is not carried out, a sentence each."""


def find(text: str, source: str) -> dict[str, Any] | None:
    """Return the KubeSchedulerConfiguration in `text`, also where a ConfigMap carries it; None where there is none.

    Raises SettingsError for a ConfigMap with several.
    """
    if not source.endswith((".yaml", ".yml")) and KIND not in text:
        return None
    document = parse(text, source if source.endswith((".yaml", ".yml")) else f"{source}.yaml")
    if document.get("kind") != "ConfigMap":
        return document if document.get("kind") == KIND else None
    data = document.get("data")
    texts = [each for each in data.values() if isinstance(each, str) and KIND in each] if isinstance(data, dict) else []
    if not texts:
        return None
    if len(texts) > 1:
        raise SettingsError(source, "data", f"{len(texts)} keys hold a {KIND}: give one of them as a file")
    return parse(texts[0], f"{source}.yaml")


def read(document: Mapping[str, Any], source: str) -> KubeConfiguration:
    """Return what the document means. Raises SettingsError naming profile, point, plugin and argument."""
    stated = convert(dict(document), Document, source)
    notes: list[str] = []
    if stated.extenders:
        raise SettingsError(
            source, "extenders", "calling extenders is not supported; remove them or keep kube-scheduler"
        )
    for given in (
        stated.percentage_of_nodes_to_score,
        *(each.percentage_of_nodes_to_score for each in stated.profiles),
    ):
        if given not in (None, 0, 100):
            notes.append(f"percentageOfNodesToScore {given}: all nodes are scored, always")
    kinds = {kind.name: (key, kind) for key, kind in available().items()}
    stated_profiles = stated.profiles or [KubeProfile()]
    names = [each.scheduler_name for each in stated_profiles]
    profiles = [
        ProfileSettings(each.scheduler_name, _plugins(each, names, kinds, f"{source}: profiles[{index}]", notes))
        for index, each in enumerate(stated_profiles)
    ]
    settings = SchedulerSettings(
        scheduler_name=profiles[0].scheduler_name,
        plugins=profiles[0].plugins,
        profiles=tuple(profiles[1:]),
        backoff_initial_seconds=float(stated.pod_initial_backoff_seconds),
        backoff_max_seconds=float(stated.pod_max_backoff_seconds),
    )
    for key in ("lease_duration", "renew_deadline", "retry_period"):
        if not duration_seconds(getattr(stated.leader_election, key)):
            raise SettingsError(source, f"leaderElection.{key}", "expected a duration such as 15s")
    return KubeConfiguration(settings, stated.leader_election, stated.client_connection, notes)


def _plugins(
    profile: KubeProfile,
    names: list[str],
    kinds: Mapping[str, tuple[str, type[Plugin[Any]]]],
    source: str,
    notes: list[str],
) -> dict[str, dict[str, Any]]:
    """Return the tables of the profile's plugins."""
    _check_names(profile, kinds, source, notes)
    args = {each.name: each.args for each in profile.plugin_config}
    tables: dict[str, dict[str, Any]] = {}
    for name, (key, kind) in kinds.items():
        table = _placement(profile.plugins, name, kind)
        if table["enabled"]:
            table |= plugin_settings(name, args.get(name, {}), source, notes)
        tables[key] = table
    _settle(profile, tables, kinds, names, args, source, notes)
    return tables


def _check_names(profile: KubeProfile, kinds: Mapping[str, Any], source: str, notes: list[str]) -> None:
    known = ", ".join(sorted(kinds))
    remedy = f"no such plugin; there are {known}; others are entry points of the group koord.scheduler_plugins"
    for point, plugins in profile.plugins.items():
        for each in plugins.enabled:
            if each.name in WITHIN:
                other = WITHIN[each.name]
                notes.append(f"{source}: {each.name}: {f'part of {other}' if other else 'has no counterpart'} here")
            elif each.name not in kinds:
                raise SettingsError(source, f"plugins.{_camel(point)}: {each.name}", remedy)
    for args in profile.plugin_config:
        if args.name not in kinds and args.name not in WITHIN:
            raise SettingsError(source, f"pluginConfig: {args.name}", remedy)


def _placement(points: PluginPoints, name: str, kind: type[Plugin[Any]]) -> dict[str, Any]:
    """Return whether the plugin is on, its weight, and the points that it is taken from."""
    everywhere = points.multi_point.keeps(name, default=name not in KOORDINATOR and kind.enabled)
    listed = {point for point, plugins in points.items() if any(each.name == name for each in plugins.enabled)}
    if not (everywhere or listed):
        return {"enabled": False}
    without = [
        ours
        for point, ours in POINT_NAMES.items()
        if getattr(kind, ours) is not getattr(Plugin, ours)
        and not getattr(points, point).keeps(name, default=everywhere)
        and ELSEWHERE.get((name, point)) not in listed
    ]
    table: dict[str, Any] = {"enabled": True}
    weights = [
        each.weight for plugins in (points.score, points.multi_point) for each in plugins.enabled if each.name == name
    ]
    weight = next((each for each in weights if each), 0)
    if weight:
        table["weight"] = weight
    if without:
        table["without"] = without
    return table


def _settle(
    profile: KubeProfile,
    tables: dict[str, dict[str, Any]],
    kinds: Mapping[str, tuple[str, type[Plugin[Any]]]],
    names: list[str],
    args: Mapping[str, Mapping[str, Any]],
    source: str,
    notes: list[str],
) -> None:
    """Carry out what concerns several plugins at once."""
    points = profile.plugins
    sorters = [each.name for each in points.queue_sort.enabled]
    if sorters and sorters != ["PrioritySort"]:
        notes.append(f"{source}: queueSort {', '.join(sorters)}: the queue's order is PrioritySort's")
    tables[kinds["PrioritySort"][0]] = {"enabled": True}
    if not points.bind.keeps("DefaultBinder", default=True):
        raise SettingsError(source, "plugins.bind", "nothing binds: enable DefaultBinder")
    preemption = tables[kinds["DefaultPreemption"][0]]
    if args.get("Coscheduling", {}).get("enablePreemption") and "post_filter" in preemption.get("without", ()):
        del preemption["without"]
        notes.append(f"{source}: Coscheduling's preemption of whole gangs is DefaultPreemption's here, which stays on")
    aware = args.get("Coscheduling", {}).get("awareNetworkTopology") is True
    tables[kinds["NetworkTopology"][0]] = {"enabled": aware and tables[kinds["Coscheduling"][0]]["enabled"]}
    reservation = tables[kinds["Reservation"][0]]
    if reservation["enabled"]:
        reservation["scheduler_names"] = ["", *names]


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
