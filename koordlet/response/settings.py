"""Settings of the response, with their ranges."""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.intents import Strength
from api.qos import QoSClass

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Ratio = Annotated[float, Meta(gt=0, lt=1)]


class ResponseSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[response]: speed and limits of escalation, and of release."""

    resources: tuple[str, ...] = ("cpu", "memory", "blockio", "network", "cache", "memory_bandwidth")
    """Resources whose verdicts are answered."""
    max_strength: Strength = Strength.HARD
    """Strongest action allowed; 3 allows freezing and eviction."""
    limited_classes: tuple[QoSClass, ...] = (QoSClass.BE,)
    """Classes that may be limited for a victim of a higher one; nothing of another class lies within what is limited.
    "" is a cgroup without a class."""
    felt_slowdown_ratio: Annotated[float, Meta(ge=0, le=10)] = 0.05
    """A loss is felt if the victim's requests take longer than usual by more than this ratio, beyond the grain of its
    baseline. A loss that is not felt starts no action; without requests it is felt when it exceeds the loss budget."""
    min_culprit_share: Ratio = 0.1
    """Least share of the loss that makes a culprit worth an action."""
    min_improvement_ratio: Ratio = 0.3
    """An action is kept if the victim's loss fell by at least this ratio ..."""
    loss_budget_seconds_per_second: Annotated[float, Meta(gt=0, le=1)] = 0.02
    """... or to less than this ..."""
    loss_budget_ratio: Ratio = 0.05
    """... or, for CPU time, to less than this ratio of the victim's progress in the same time."""
    limit_budget_factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    """A limit on CPU time, which the culprit feels even where CPUs are free, needs a loss above so many budgets; one on
    block IO beside a weight a loss above so many times what one IO takes, the victim's or the culprit's."""
    turnaround_slack: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """... and its 99th percentile turnaround, where measured, did not grow by more than this ratio."""
    settle_seconds: Seconds = 1.0
    """Time after an action before the trial begins ..."""
    verify_seconds: Seconds = 3.0
    """... and length of the trial."""
    hold_seconds: Seconds = 30.0
    """Least time that a kept action stays after the last verdict on its culprit."""
    hold_factor: Annotated[float, Meta(ge=1, le=10)] = 2.0
    """Factor by which the hold grows each time the culprit comes back ..."""
    max_hold_seconds: Seconds = 600.0
    """... up to this."""
    remember_seconds: Seconds = 900.0
    """Time that a culprit's hold, and the rungs that did not help against it, are remembered."""
    release_seconds: Seconds = 5.0
    """Time between the release of two actions."""
    quiet_ratio: Ratio = 0.05
    """A culprit that uses less than this ratio of its use when it was acted upon is quiet ..."""
    quiet_seconds: Seconds = 3.0
    """... after this time, and is released at once."""
    fast_path: bool = True
    """Whether a trip in the kernel wakes the agent at once when a latency-sensitive cgroup loses more than ..."""
    fast_path_budget_ratio: Ratio = 0.15
    """... this ratio of ..."""
    fast_path_window_seconds: Annotated[float, Meta(ge=0.01, le=1.0)] = 0.05
    """... this window."""
    quota_floor_millicores: Annotated[int, Meta(ge=10, le=1_000_000)] = 200
    """Lowest CPU quota."""
    io_floor_bytes_per_second: Annotated[int, Meta(ge=4096)] = 1 << 20
    """Lowest limit on block IO."""
    io_slowdown: Annotated[float, Meta(gt=0, le=10)] = 0.05
    """Slowdown of the victim's IO that a limit on block IO aims at."""
    reclaim_ratio: Ratio = 0.25
    """Share of the culprit's memory that one reclaim takes, page cache first as the kernel does."""
    freeze_seconds: Seconds = 2.0
    """Longest time that a culprit is frozen."""
    lease_seconds: Seconds = 15.0
    """Time that an action outlives the agent's last renewal."""

    @property
    def verify_ticks(self) -> int:
        """Length of a trial in ticks; a tick counts as one second, the agent's default."""
        return max(int(self.verify_seconds), 1)
