"""Whether a CPU quota is too small for bursts alone: the one rule of burst, quota scaling and recommended limits."""

BUSY_SHARE = 0.5
"""Of a quota that is used in the mean, above which throttling is a matter of the quota: up to it, of bursts."""


def is_busy(used_cores: float, quota_cores: float) -> bool:
    """Return whether a cgroup wants a larger quota rather than bursts; False where its use is not known (NaN)."""
    return used_cores > BUSY_SHARE * quota_cores
