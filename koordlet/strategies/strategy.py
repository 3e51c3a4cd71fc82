"""Node strategies: the framework, and the page to read before writing one.

How to write a strategy
-----------------------

A strategy is one way to keep a node in order: each tick it gets an immutable view of the node and returns intents. It
has no side effects. The enforcer journals, applies, limits and restores what it asks for (docs/enforcer.md).

Two files make one:

- `koordlet/strategies/plugins/<name>.py` defines one settings class and one subclass of `Strategy`. The file's name
  is the strategy's name: in `[enforcer] strategies`, in metrics, in the audit log.
- `tests/koordlet/strategies/plugins/test_<name>.py` tests it and states its defaults as `DEFAULTS`.

`tests/koordlet/strategies/test_together.py` then holds it to what all strategies promise, switched on by its
`example`; `python -m koordlet.strategies.page` puts its row into docs/strategies.md. A check that fails names the
file and the line to add.

A complete one, which keeps pods of the class BE at half a CPU:

    from api.intents import Intent, Knob, Strength
    from koordlet.strategies.strategy import Strategy, StrategySettings
    from koordlet.strategies.view import NodeView

    class HalfCpuSettings(StrategySettings, frozen=True):
        enable: bool = False

    class HalfCpu(Strategy[HalfCpuSettings]):
        \"\"\"A quota of half a CPU on each best-effort pod.\"\"\"

        settings_type = HalfCpuSettings

        def intents(self, view: NodeView, now: float) -> list[Intent]:
            if not self.settings.enable:
                return []
            pods = [pod for pod in view.pods if pod.best_effort and pod.active and not pod.protected]
            why = "best-effort pods have half a CPU"
            return [self.set_knob(pod.path, Knob.CPU_MAX, "50000 100000", why, Strength.HARD) for pod in pods]

*View.* `koordlet/strategies/view.py`: pods, containers, host applications and the kubelet's directories with usage of
the last tick, requests, limits and what some knobs hold; the node with its CPUs, memory, pressure and recent
evictions. A measurement that is absent is None, never zero.

*Intents.* `set_knob` asks for a value in cgroup v2 syntax, `reclaim` for memory now, `evict` for the end of a pod.
The reason is one sentence with the numbers that decided; it is logged and audited. State the `Strength`: conflicts
between strategies and the enforcer's budgets go by it.

*Leases.* A setting holds only while it is asked for: return the same setting in every tick in which it should hold.
When it is missing from a decision, the enforcer restores what the file held before. So never ask whether a setting is
already in effect; a value read from the view may serve only as the base of the next step. If the agent dies, the
lease (`Setting.lease_seconds`) ends and the value is restored too.

*Silence.* Where a measurement is missing, call `stay_silent` and return nothing: settings of a silent strategy stay
until their lease ends, instead of going back at once. A strategy that raises is silent as well, and the others go on.

*Problems.* `self.problems` collects what this decision could not follow, by cgroup path or settings key: a pod's
annotation that cannot be read, a device that the node lacks. They are counted in the metrics and change nothing else.

*Settings.* A frozen `StrategySettings`, fields in camel case in the NodeSLO, a docstring under each, ranges in
`msgspec.Meta`, relations of two fields in `__post_init__`. They are read from `section` of the NodeSLO's spec: a
section of Koordinator's protocol, `extensions.<key>`, or, without a `section`, `extensions.<name>`. Defaults leave
the strategy off. `features` are gates, set by `[strategies.features]`.

*Memory.* What a strategy remembers between ticks are attributes of the object. Time is `now`, monotonic seconds,
which never goes back; calendars use `view.time_seconds`. Strategies read no clock and do no I/O, and do not import
each other: shared arithmetic is in `koordlet/strategies/` (`cpuquota`, `cpupick`, `sampling`, `eviction_order`, ...).

*Outside this project.* A distribution registers its class as an entry point of the group `koord.strategies`; the
entry point's name is the strategy's name:

    [project.entry-points."koord.strategies"]
    half_cpu = "half_cpu:HalfCpu"
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.plugin import discover
from api.qos import QoSClass
from koordlet.strategies.view import NodeView

EXTENSIONS = "extensions"
"""Section of a NodeSLO's spec for settings that Koordinator's protocol does not name, one table for each strategy."""


class StrategySettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of a strategy's settings: the fields it reads of its section of a NodeSLO, with their defaults.

    Percents are whole numbers, ranges stand in `msgspec.Meta`, what relates two fields in `__post_init__`.
    """


BEST_EFFORT = frozenset({QoSClass.BE})
SENSITIVE = frozenset({QoSClass.BE, QoSClass.LS})
_OF_PROTOCOL = frozenset({QoSClass.BE, QoSClass.LS, QoSClass.LSR, QoSClass.LSE})

S = TypeVar("S", bound=StrategySettings)


class Strategy(ABC, Generic[S]):
    """Base of all strategies; the module's docstring says how to write one.

    The docstring of a subclass in this project ends with lines `Reads:`, `Intents:`, `Default:` and `Source:` (and
    `Pods:` where pods override settings by annotation or label), which become its row in docs/strategies.md.
    """

    section: ClassVar[str] = ""
    """Path of its settings in a NodeSLO's spec, parts joined by dots; empty is `extensions.<name>`."""
    features: ClassVar[Mapping[str, bool]] = {}
    """Gates that switch its parts, with their defaults; Koordinator's names where it has them."""
    settings_type: type[S]
    example: ClassVar[Mapping[str, Any]] = {}
    """Table for its section that switches all of it on: what the shared tests run it with."""
    repeats: ClassVar[bool] = False
    """Whether it acts again and again on a node that does not change, as one that evicts or reclaims does."""

    is_protocol_state: ClassVar[bool] = False
    """Whether its settings are what the protocol gives each pod of a class: they stay when the agent goes."""

    def __init__(self, settings: S | None = None, features: Mapping[str, bool] | None = None) -> None:
        self.name = type(self).__module__.rpartition(".")[2]
        """Name of its module, or of its entry point."""
        self.settings: S = self.settings_type() if settings is None else settings
        self.gates = {name: (features or {}).get(name, default) for name, default in self.features.items()}
        self.problems: dict[str, str] = {}
        """Problems of the last decision: cgroup path or settings key to what is wrong with it."""
        self.silent = False
        """Whether the last decision lacked measurements: settings that it omits then hold until their lease ends."""

    @property
    def settings_path(self) -> str:
        """Path of its settings in a NodeSLO's spec, parts joined by dots."""
        return settings_path(self.name, type(self))

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """Classes that its settings let it give less to, reclaim from or evict; the enforcer refuses it all others.

        BE, unless the strategy says otherwise: one that names LS shows so in `koordlet doctor`. State of the protocol
        is what each pod of a class is given.
        """
        return _OF_PROTOCOL if self.is_protocol_state else BEST_EFFORT

    @property
    def needs_memory_domains(self) -> bool:
        """Whether it needs `NodeView.memory_domains`, which cost a few file reads in each tick."""
        return False

    def decide(self, view: NodeView, now: float) -> list[Intent]:
        """Return what should hold or happen now; `now` is monotonic seconds and never goes back."""
        self.problems, self.silent = {}, False
        return self.intents(view, now)

    @abstractmethod
    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return this tick's intents; callers use `decide`."""

    def stay_silent(self, key: str, problem: str) -> None:
        """Note a missing measurement: no conclusion may be drawn from what this decision omits."""
        self.problems[key], self.silent = problem, True

    def set_knob(self, target: str, knob: Knob, value: str, reason: str, strength: Strength = Strength.MILD) -> Setting:
        """Return a setting of this strategy."""
        return Setting(
            strategy=self.name,
            target=target,
            knob=knob,
            value=value,
            reason=reason,
            strength=strength,
            protocol_state=self.is_protocol_state,
        )

    def reclaim(self, target: str, amount_bytes: int, reason: str) -> Reclaim:
        """Return an intent to take memory from a cgroup now."""
        return Reclaim(strategy=self.name, target=target, amount_bytes=amount_bytes, reason=reason)

    def evict(self, target: str, reason: str, grace_seconds: float = 30.0) -> Evict:
        """Return an intent to evict a pod."""
        return Evict(
            strategy=self.name, target=target, reason=reason, strength=Strength.DRASTIC, grace_seconds=grace_seconds
        )


def settings_path(name: str, kind: type[Strategy[Any]]) -> str:
    """Return the path of a strategy's settings in a NodeSLO's spec."""
    return kind.section or f"{EXTENSIONS}.{name}"


def discover_strategies() -> dict[str, type[Strategy[StrategySettings]]]:
    """Map name to class, in the order of names: the modules of `plugins/`, and entry points of `koord.strategies`."""
    import koordlet.strategies.plugins as package

    found = discover(package, Strategy, "koord.strategies")  # type: ignore[type-abstract]
    return {name: found[name] for name in sorted(found)}


def make_strategies(features: Mapping[str, bool] | None = None) -> dict[str, Strategy[Any]]:
    """Return one object of each strategy by name, with default settings and these gates."""
    made: dict[str, Strategy[Any]] = {}
    for name, kind in discover_strategies().items():
        made[name] = kind(features=features)
        made[name].name = name
    return made
