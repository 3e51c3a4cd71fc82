"""Warnings about what does not fit: levels of placing and evicting, amounts in the wrong unit, a second manager."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from api.kube.resources import MEMORY
from api.kube.times import epoch_seconds
from api.protocol import ANNOTATION_USAGE_THRESHOLDS, BATCH_CPU
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.capacity.pods import facts_of
from controllers.kinds import CONFIG_MAP, NODE, NODE_SLO, POD, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Writes, kind_name, reference

PLUGIN = "LoadAwareScheduling"
DEFAULT_MEMORY_PERCENT = 95
"""LoadAware's threshold where its arguments have none."""
WHOLE_CORES = 50
"""Fewer millicores than this are rather cores by mistake: no program runs on a twentieth of a core."""
OURS = frozenset({"koord", "kubelet"})
"""Field managers that may own extended resources: this project's programs, and the kubelet after its restart."""
RECENT_SECONDS = 900.0


class LevelSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.level_checks]`."""

    scheduler_config_name: str = "koord-scheduler-config"
    """ConfigMap with the scheduler's configuration, in the manager's namespace."""
    scheduler_config_key: str = "koord-scheduler-config"
    """Key of the configuration in it."""


class LevelChecks(Controller[LevelSettings]):
    """Records Events; writes nothing else."""

    settings_type = LevelSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (CONFIG_MAP, NODE, NODE_SLO, POD)

    def plan(self, view: View, now: float) -> Writes:
        """Return the warnings about due nodes and pods."""
        nodes, slos, pods = view.objects(NODE), view.objects(NODE_SLO), view.objects(POD)
        warnings: list[Event] = []
        cluster_percent = self._placing_percent(view)
        for key in sorted(nodes) if view.touched(CONFIG_MAP) else view.due(NODE, NODE_SLO):
            node, slo = nodes.get(key), slos.get(key)
            if node is None or slo is None:
                continue
            threshold = slo.spec.resource_used_threshold_with_be
            placing = _own_percent(node, cluster_percent)
            evicting = threshold.memory_evict_threshold_percent if threshold and threshold.enable else None
            if evicting is not None and placing is not None and placing > evicting:
                note = (
                    f"best-effort pods are evicted from {evicting} % memory usage, and the scheduler places pods up to"
                    f" {placing} %: they come back. Set LoadAware's memory threshold below {evicting}"
                )
                warnings.append(Event(reference(NODE, node), "LevelsDisagree", note, "CheckLevels", "Warning"))
        warnings += [
            Event(reference(NODE, node), "ForeignManager", note, "CheckLevels", "Warning")
            for key in view.due(NODE)
            if (node := nodes.get(key)) is not None and (note := _foreign(node, now))
        ]
        for key in view.due(POD):
            pod = pods.get(key)
            facts = facts_of(pod) if pod is not None else None
            if pod is not None and facts is not None and 0 < facts.batch[0] < WHOLE_CORES:
                note = (
                    f"{BATCH_CPU} {facts.batch[0]} is {facts.batch[0]} thousandths of a core;"
                    f" {facts.batch[0]} cores are {1000 * facts.batch[0]}"
                )
                warnings.append(Event(reference(POD, pod), "BatchCpuInCores", note, "CheckLevels", "Warning"))
        return Writes((), warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the levels of a node at which pods are placed and evicted, and who else writes its resources."""
        node = view.objects(NODE).get(key)
        if kind != kind_name(NODE) or node is None:
            return ()
        slo = view.objects(NODE_SLO).get(key)
        threshold = slo.spec.resource_used_threshold_with_be if slo is not None else None
        evicting = threshold.memory_evict_threshold_percent if threshold and threshold.enable else None
        placing = _own_percent(node, self._placing_percent(view))
        said = (
            f"the scheduler places pods up to {_percent(placing)} its memory",
            f"best-effort pods are evicted from {_percent(evicting)} it",
            _foreign(node, now),
        )
        return [each for each in said if each]

    def _placing_percent(self, view: View) -> int | None:
        """Return LoadAware's memory threshold; None where it is off or the configuration is not known."""
        for key, found in view.objects(CONFIG_MAP).items():
            if (key.namespace, key.name) == (self.config_map.namespace, self.settings.scheduler_config_name):
                return loadaware_memory_percent(found.data.get(self.settings.scheduler_config_key, ""))
        return None


def _percent(level: int | None) -> str:
    return "no stated level of" if level is None else f"{level} % of"


def _foreign(node: Node, now: float) -> str:
    """Return which other program writes the node's batch and mid resources; empty for none.

    What it wrote last belongs to a field manager; an old entry may be that of a program that is gone.
    """
    others = sorted(
        each.manager[:63]
        for each in node.metadata.managed_fields
        if each.manager not in OURS
        and each.fields_v1.status.allocatable.is_written
        and now - (epoch_seconds(each.time) or 0.0) < RECENT_SECONDS
    )
    if not others:
        return ""
    return f"batch and mid resources are also written by {', '.join(others)}: two managers change them in turn; end one"


def loadaware_memory_percent(text: str) -> int | None:
    """Return the memory threshold of LoadAwareScheduling in a scheduler configuration; None where there is none."""
    try:
        document = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    for profile in _list(document, "profiles"):
        for plugin in _list(profile, "pluginConfig"):
            if isinstance(plugin, Mapping) and plugin.get("name") == PLUGIN:
                args = plugin.get("args")
                thresholds = args.get("usageThresholds") if isinstance(args, Mapping) else None
                return _memory(thresholds) if isinstance(thresholds, Mapping) else DEFAULT_MEMORY_PERCENT
    return None


def _list(document: Any, name: str) -> list[Any]:
    value = document.get(name) if isinstance(document, Mapping) else None
    return value if isinstance(value, list) else []


def _memory(thresholds: Mapping[str, Any]) -> int | None:
    percent = thresholds.get(MEMORY)
    return percent if isinstance(percent, int) and percent > 0 else None


def _own_percent(node: Node, cluster_percent: int | None) -> int | None:
    """Return the threshold of a node: its annotation's, else the cluster's."""
    text = node.metadata.annotations.get(ANNOTATION_USAGE_THRESHOLDS)
    if text is None:
        return cluster_percent
    try:
        own = msgspec.json.decode(text, type=dict[str, Any]).get("usageThresholds")
    except (msgspec.DecodeError, RecursionError):
        return cluster_percent
    return _memory(own) if isinstance(own, Mapping) else cluster_percent
