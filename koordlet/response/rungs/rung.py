"""Rungs as values: what one does, how strong it is, and what takes it back.

A rung that has nothing to set (a missing knob, CPUs that cannot be separated) returns nothing and is skipped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from api.cgroup_path import competing_ancestor
from api.intents import Intent, Knob, Setting, Strength
from koordlet.response.history import Pair
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

STRATEGY = "response"


@dataclass(frozen=True, slots=True)
class Interference:
    """Interference of one culprit with one victim, and the verdict that found it."""

    culprit: str
    victim: str
    resource: str
    reason: str
    verdict: str
    lost: float = 0.0
    """Seconds per second that the culprit costs the victim, by the verdict's share."""
    felt: bool = True
    """Whether the victim is slower for it: a loss that is not felt starts no action, and adds none."""
    allowance_cores: float = math.inf
    """CPU time that limits may take from the culprit for this victim: its entitlement, less what they take from others
    for it."""
    claim: float = math.inf
    """Seconds per second that the victim may hold against the culprit (entitlement.py) in this tick."""
    disks: tuple[str, ...] = ()
    """Disks that a limit was first set on; empty for those that both use."""

    @property
    def pair(self) -> Pair:
        """Key of its series."""
        return Pair(self.culprit, self.victim, self.resource)


_HOLDING_KNOBS = frozenset({Knob.CPUSET_CPUS, Knob.CPU_MAX, Knob.FREEZE})

Build = Callable[[Observation, Interference, ResponseSettings], tuple[Intent, ...]]
LimitSetter = Callable[[Observation, Interference, ResponseSettings, float], tuple[Intent, ...]]


@dataclass(frozen=True, slots=True)
class Steering:
    """A limit that follows the victim's loss while its rung is applied; see limit_control.py."""

    ceiling: Callable[[Observation, Interference], float]
    """What the culprit uses without the limit."""
    floor: Callable[[Observation, Interference, ResponseSettings], float]
    """The lowest limit."""
    used: Callable[[Observation, Interference], float]
    """What the culprit uses now, in the same unit."""
    set_limit: LimitSetter
    """Intents for a limit."""
    edge_growth: float
    """Growth of the limit that hurt, in each tick without excess loss."""
    deepest_cut: float
    """Least factor of one step down."""
    searches_ceiling: bool = False
    """Whether the limit may reach its ceiling before it is released, because a calm victim is common."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One action; `knob` is None where the action sets none."""

    name: str
    strength: Strength
    knob: Knob | None
    build: Build
    one_shot: bool = False
    """Sent in one tick only: nothing remains in effect that could be reverted."""
    temporary: bool = False
    """Released after `freeze_seconds`, whatever the loss."""
    steering: Steering | None = None
    relieves_victim: bool = False
    """Set on the victim, and judged by the time that quotas cost it, its own and those above."""
    outlasts_lift: bool = False
    """Its effect stays for long after it is taken back: a short lift shows nothing."""
    yields: bool = False
    """Makes the culprit yield to others (a weight, the idle class) and takes only what other work wants."""

    @property
    def costs_idle_time(self) -> bool:
        """Return whether the culprit loses CPU time by it although CPUs are free."""
        return self.knob in _HOLDING_KNOBS or self.strength is Strength.DRASTIC

    @property
    def limits(self) -> bool:
        """Return whether it takes from the culprit what no other work may want."""
        return self.costs_idle_time or self.steering is not None

    @property
    def liftable(self) -> bool:
        """Return whether a lift of a tick or two shows what the rung does."""
        return not (self.one_shot or self.temporary or self.relieves_victim or self.outlasts_lift)


def weight_target(observation: Observation, interference: Interference, settings: ResponseSettings) -> str:
    """Return the cgroup whose weight acts on the culprit's share against the victim: its competing ancestor, or "".

    Weights and cpu.idle act between the children of one cgroup only: further down they move time between the culprit
    and its own siblings. Nothing where the ancestor holds a cgroup that may not be limited, and where it is one of the
    kubelet's directories: the kubelet writes their weight, and fails to start when it cannot.
    """
    whole = competing_ancestor(interference.culprit, interference.victim)
    if not whole or observation.is_kubelets(whole):
        return ""
    return whole if observation.classes_within(whole) <= frozenset(settings.limited_classes) else ""


def setting(
    interference: Interference, settings: ResponseSettings, strength: Strength, knob: Knob, *, at: str, value: str
) -> Setting:
    """Return the intent for one knob."""
    return Setting(
        strategy=STRATEGY,
        target=at,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=strength,
        knob=knob,
        value=value,
        lease_seconds=settings.lease_seconds,
    )


def fixed(knob: Knob, value: str, strength: Strength) -> Build:
    """Return what sets a knob of the cgroup that `weight_target` names to a value."""

    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        target = weight_target(observation, interference, settings)
        return (setting(interference, settings, strength, knob, at=target, value=value),) if target else ()

    return build
