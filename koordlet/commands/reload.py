"""SIGHUP: the settings are read again; what can change in a running agent does, the rest is said to need a restart."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from api.plugin import PluginError
from api.settings import SettingsError
from koordlet.agent.detection import Detection, rules
from koordlet.agent.signals import Stop
from koordlet.config import AgentSettings, load_settings
from koordlet.control.control_loop import ControlLoop, with_enforcement
from koordlet.control.strategy_runner import StrategyRunner, node_slo
from koordlet.tick import Tick

_log = logging.getLogger("koordlet")

_RESTART = ("fast_path", "fast_path_window_seconds", "fast_path_budget_ratio")
LIVE: Mapping[str, frozenset[str]] = {
    "detection": frozenset({"rules", "rules_file", "disabled_rules"}),
    "enforcer": frozenset({"strategies", "only", "protected", "changes_per_minute", "pod_changes_per_minute"}),
    "response": frozenset(AgentSettings().response.__struct_fields__) - frozenset(_RESTART),
    "strategies": frozenset({"node_slo", "node_slo_file"}),
}
"""Keys of each table that a running agent follows."""


def changes(before: AgentSettings, after: AgentSettings) -> dict[str, frozenset[str]]:
    """Return the changed keys by table; a key outside of tables is in the table of no name."""
    found: dict[str, frozenset[str]] = {}
    bare = set()
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, msgspec.Struct):
            found[name] = frozenset(key for key in old.__struct_fields__ if getattr(old, key) != getattr(new, key))
        else:
            bare.add(name)
    return found | ({"": frozenset(bare)} if bare else {})


def needing_restart(changed: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the changed keys that a running agent does not follow, as `[table] key`."""
    return [
        f"[{table}] {key}" if table else key
        for table, keys in sorted(changed.items())
        for key in sorted(keys - LIVE.get(table, frozenset()))
    ]


@dataclass(slots=True)
class Reload:
    """Reads the settings again when asked, at the end of a tick. Settings that are refused leave all as it is."""

    config: Path | None
    settings: AgentSettings
    """As read the last time, before flags."""
    enforce: bool
    stop: Stop
    control: ControlLoop
    detection: Detection | None
    strategies: StrategyRunner | None

    def step(self, _tick: Tick) -> None:
        """A sink of ticks."""
        if self.stop.take_reload():
            self.reload()

    def reload(self) -> None:
        """Read the file and follow it."""
        if self.config is None:
            _log.warning("SIGHUP: this agent runs without --config, so there is nothing to read again")
            return
        try:
            new = load_settings(self.config)
            changed = changes(self.settings, new)
            self._follow(new, changed)
        except (SettingsError, PluginError) as error:
            _log.error("SIGHUP: %s; the settings stay as they were", error)
            return
        self.settings = new
        left = needing_restart(changed)
        followed = sum(map(len, changed.values())) - len(left)
        _log.info("SIGHUP: settings read again; %d changed keys are followed", followed)
        if left:
            _log.warning("SIGHUP: a restart is needed for %s", ", ".join(left))

    def _follow(self, new: AgentSettings, changed: Mapping[str, frozenset[str]]) -> None:
        """Validate all before anything takes effect."""
        source = str(self.config)
        live = {table: keys & LIVE.get(table, frozenset()) for table, keys in changed.items()}
        judge = self.detection.judge if self.detection is not None else None
        judged = rules(new.detection, source) if live.get("detection") and judge else None
        spec = node_slo(new.strategies, source) if live.get("strategies") else None
        if judged is not None and judge is not None:
            judge.replace_rules(judged)
        if live.get("strategies") and self.strategies is not None:
            for refused in self.strategies.follow_settings(spec, new.strategies.node_slo_file or source):
                _log.error("SIGHUP: %s; what it sets stays as it was", refused)
        if live.get("enforcer") or live.get("response"):
            acting = with_enforcement(new, enforce=self.enforce)
            self.control.follow(acting.enforcer, new.response)
