"""Cooldown after an eviction: new pods stay off a node that just evicted some, as at Bilibili."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from api.intents import Intent, Knob, Strength
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import NodeView

TAINT = "node.koordinator.sh/eviction-cooldown"


class EvictionCooldownSettings(StrategySettings, frozen=True):
    """extensions.evictionCooldown."""

    enable: bool = False
    seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300
    """Time since the last eviction by any component."""
    effect: Literal["PreferNoSchedule", "NoSchedule"] = "PreferNoSchedule"
    """Effect of the taint; it applies to all pods that do not tolerate it, latency-sensitive ones too."""


class EvictionCooldown(Strategy[EvictionCooldownSettings]):
    """A taint on the node for some minutes after an eviction.

    Reads: recent evictions
    Intents: a taint
    Default: off, 300 s
    Source: Bilibili
    """

    section: ClassVar[str] = "extensions.evictionCooldown"
    settings_type = EvictionCooldownSettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True}

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the taint while the last eviction is recent."""
        last = max(view.evictions.values(), default=None)
        if not self.settings.enable or last is None or now - last >= self.settings.seconds:
            return []
        reason = f"pods were evicted; new ones wait {self.settings.seconds} s"
        return [self.set_knob(TAINT, Knob.NODE_TAINT, f"evicted:{self.settings.effect}", reason, Strength.MILD)]
