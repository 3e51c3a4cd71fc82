"""Who may act on this node, and on cgroups of which classes, for `koordlet doctor`."""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from koordlet.config import AgentSettings
from koordlet.control.strategy_runner import open_strategies
from koordlet.enforcer.enforcer import ANSWER


def who_may_act(settings: AgentSettings, spec: Mapping[str, Any] | None = None) -> str:
    """Return what the settings allow, as one line; with the `spec` of a NodeSLO what that allows in their place.

    Raises SettingsError for strategies that cannot be opened.
    """
    enforcer = settings.enforcer
    if not enforcer.enabled:
        return "nothing is changed: [enforcer] enabled is off"
    runner = open_strategies(settings.strategies, "the settings", live=True)
    if runner is not None and spec is not None:
        runner.follow(spec, "the NodeSLO")
    classes = {ANSWER: frozenset(settings.response.limited_classes)}
    for name, strategy in runner.strategies.items() if runner is not None else ():
        if strategy.settings != type(strategy)().settings:
            classes[name] = strategy.limited_classes
    found = []
    for name, limited in classes.items():
        if any(fnmatchcase(name, pattern) for pattern in enforcer.strategies):
            found.append(f"{name} may limit {', '.join(sorted(qos or 'unclassed' for qos in limited)) or 'nothing'}")
    is_stopped = enforcer.stop_file and os.path.lexists(enforcer.stop_file)
    parts = [f"stopped by {enforcer.stop_file}"] if is_stopped else []
    parts += ["a dry run"] if enforcer.dry_run else []
    return "; ".join([*parts, *(found or ["no strategy may"])])
