"""CPU quotas in the syntax of `cpu.max`, always per 100 ms. None is no limit; a number never means that."""

PERIOD_US = 100_000
MIN_US = 1_000
"""Smallest quota that the kernel accepts."""


def parse_quota(text: str) -> int | None:
    """Return the quota per 100 ms of a `cpu.max`, whatever its period; None for `max`. Raises ValueError."""
    quota, _, period = text.strip().partition(" ")
    if quota == "max":
        return None
    if not int(period or PERIOD_US):
        raise ValueError(f"{text!r} has no period")
    return int(quota) * PERIOD_US // int(period or PERIOD_US)


def format_quota(quota_us: int | None) -> str:
    """Return the `cpu.max` of a quota per 100 ms, at least the smallest that the kernel accepts."""
    return f"{'max' if quota_us is None else max(quota_us, MIN_US)} {PERIOD_US}"


def quota_of(millicores: int) -> int:
    """Return the quota per 100 ms of this many millicores."""
    return max(millicores * PERIOD_US // 1000, MIN_US)
