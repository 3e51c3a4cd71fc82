"""What can be set of the response, with ranges."""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.intents import Strength

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Ratio = Annotated[float, Meta(gt=0, lt=1)]


class ResponseSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[response]: how far and how fast the ladder is climbed, and how slowly it is left."""

    resources: tuple[str, ...] = ("cpu", "memory", "blockio", "network", "cache", "memory_bandwidth")
    """Resources whose verdicts are answered."""
    max_strength: Strength = Strength.HARD
    """No action stronger than this; 3 allows freezing and eviction."""
    min_culprit_share: Ratio = 0.1
    """Culprits of a smaller share of the loss are left alone."""
    min_improvement_ratio: Ratio = 0.3
    """An action is kept if the victim's loss fell by at least this part ..."""
    loss_budget_seconds_per_second: Annotated[float, Meta(gt=0, le=1)] = 0.02
    """... or to less than this ..."""
    loss_budget_ratio: Ratio = 0.05
    """... or, of CPU time, to less than this part of what the victim gets done meanwhile."""
    turnaround_slack: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """... and its 99th percentile turnaround, where seen, did not grow by more than this part."""
    settle_seconds: Seconds = 1.0
    """After an action this long is not looked at ..."""
    verify_seconds: Seconds = 3.0
    """... and this long decides whether it is kept."""
    hold_seconds: Seconds = 30.0
    """A kept action stays at least this long after the last verdict on its culprit."""
    hold_factor: Annotated[float, Meta(ge=1, le=10)] = 2.0
    """A culprit that comes back is held so many times longer ..."""
    max_hold_seconds: Seconds = 600.0
    """... up to this."""
    remember_seconds: Seconds = 900.0
    """How long it is remembered that a culprit has been held, and what did not help against it."""
    release_seconds: Seconds = 5.0
    """Time between two actions' release."""
    quiet_ratio: Ratio = 0.05
    """A culprit that uses less than this part of what it used when it was acted upon has gone quiet ..."""
    quiet_seconds: Seconds = 3.0
    """... after this long, and is released at once."""
    fast_path: bool = True
    """Whether the kernel wakes the agent at once when a latency-sensitive cgroup loses too much ..."""
    fast_path_budget_ratio: Ratio = 0.15
    """... that is, this part of ..."""
    fast_path_window_seconds: Annotated[float, Meta(ge=0.01, le=1.0)] = 0.05
    """... so short a time."""
    quota_floor_millicores: Annotated[int, Meta(ge=10, le=1_000_000)] = 200
    """No quota is lower."""
    io_floor_bytes_per_second: Annotated[int, Meta(ge=4096)] = 1 << 20
    """No limit on block IO is lower."""
    io_slowdown: Annotated[float, Meta(gt=0, le=10)] = 0.05
    """A limit on block IO is steered so that the victim's IO takes at most this part longer."""
    reclaim_ratio: Ratio = 0.25
    """Part of the culprit's memory that one reclaim takes, page cache first as the kernel does."""
    freeze_seconds: Seconds = 2.0
    """How long a culprit is frozen at most."""
    lease_seconds: Seconds = 15.0
    """How long an action outlives the agent's word."""
