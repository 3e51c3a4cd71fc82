"""What a strategy is: one way to keep a node in order, from a view and a time to intents, without side effects.

A strategy wants its settings anew each tick for as long as they should stand; what it no longer wants goes back
to what was there before. So a want never depends on whether it already stands: a value read from the view is
only the base of a step. What is remembered between ticks is held by the strategy object and goes by `now`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import msgspec

from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.plugin import discover
from koordlet.strategies.view import NodeView


class StrategySettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of a strategy's settings: the fields it reads of its section of a NodeSLO, with their defaults.

    Percents are whole numbers, ranges stand in `msgspec.Meta`, what relates two fields in `__post_init__`.
    """


S = TypeVar("S", bound=StrategySettings)


class Strategy(ABC, Generic[S]):
    """One module of `koordlet.strategies`, named by its file.

    `section` is where its settings stand in a NodeSLO's spec, parts joined by dots; `features` are the gates that
    switch its parts, with Koordinator's names and defaults.
    """

    section: ClassVar[str]
    features: ClassVar[Mapping[str, bool]] = {}
    settings_type: type[S]

    def __init__(self, settings: S | None = None, features: Mapping[str, bool] | None = None) -> None:
        self.name = type(self).__module__.rpartition(".")[2]
        """Its module's name."""
        self.settings: S = self.settings_type() if settings is None else settings
        self.gates = {name: (features or {}).get(name, default) for name, default in self.features.items()}
        self.problems: dict[str, str] = {}
        """What the last decision could not follow: cgroup path or settings key to what is wrong with it."""
        self.silent = False
        """Whether the last decision lacked measurements: what it does not want then stands until its lease ends."""

    @property
    def asks_for_memory(self) -> bool:
        """Whether it needs `NodeView.memory_domains`, which cost a few file reads in each tick."""
        return False

    def decide(self, view: NodeView, now: float) -> list[Intent]:
        """What should stand or happen now; `now` is monotonic seconds and never goes back."""
        self.problems, self.silent = {}, False
        return self.intents(view, now)

    @abstractmethod
    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """As `decide`, which is the one to call."""

    def lack(self, key: str, problem: str) -> None:
        """Note a measurement that is missing for this tick, and that no conclusion may be drawn from that."""
        self.problems[key], self.silent = problem, True

    def want(self, target: str, knob: Knob, value: str, reason: str, strength: Strength = Strength.MILD) -> Setting:
        """A setting of this strategy."""
        return Setting(strategy=self.name, target=target, knob=knob, value=value, reason=reason, strength=strength)

    def reclaim(self, target: str, amount_bytes: int, reason: str) -> Reclaim:
        """Memory to be taken from a cgroup now."""
        return Reclaim(strategy=self.name, target=target, amount_bytes=amount_bytes, reason=reason)

    def evict(self, target: str, reason: str, grace_seconds: float = 30.0) -> Evict:
        """An end of a pod."""
        return Evict(
            strategy=self.name, target=target, reason=reason, strength=Strength.DRASTIC, grace_seconds=grace_seconds
        )


def discover_strategies() -> dict[str, type[Strategy[StrategySettings]]]:
    """All strategies by name, in the order of their names."""
    import koordlet.strategies.plugins as package

    found = discover(package, Strategy, "koord.strategies")  # type: ignore[type-abstract]
    return {name: found[name] for name in sorted(found)}
