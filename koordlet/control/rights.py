"""What each strategy may act upon on this node, by the settings of the response and of the strategies."""

from collections.abc import Callable, Collection

from api.qos import QoSClass
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.enforcer import ANSWER
from koordlet.enforcer.limits.rights import Classes, Rights

_OF_PROTOCOL = frozenset({"runtime_hooks"})
"""Sources of protocol state alone, for pods that they know themselves."""


def rights_of(
    limited_classes: Callable[[], Collection[QoSClass]],
    strategies: StrategyRunner | None,
    *,
    believes_kubernetes: bool,
) -> Rights:
    """The response by its present settings, strategies by theirs, nothing else anything."""

    def classes_of(strategy: str) -> Classes | None:
        if strategy == ANSWER:
            return frozenset(limited_classes())
        if strategy in _OF_PROTOCOL:
            return None
        return strategies.limited_classes(strategy) if strategies is not None else frozenset()

    return Rights(classes_of, believes_kubernetes)
