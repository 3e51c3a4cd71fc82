"""CPU quotas as `cpu.max` writes them, always per 100 ms. None is no limit; a number never means that."""

PERIOD_US = 100_000
MIN_US = 1_000
"""The kernel takes no smaller quota."""


def parse_quota(text: str) -> int | None:
    """Quota per 100 ms of a `cpu.max`, whatever its period; None for `max`. Raises ValueError."""
    quota, _, period = text.strip().partition(" ")
    if quota == "max":
        return None
    return int(quota) * PERIOD_US // int(period or PERIOD_US)


def format_quota(quota_us: int | None) -> str:
    """`cpu.max` of a quota per 100 ms, not below what the kernel takes."""
    return f"{'max' if quota_us is None else max(quota_us, MIN_US)} {PERIOD_US}"


def quota_of(millicores: int) -> int:
    """Quota per 100 ms that gives so many millicores."""
    return max(millicores * PERIOD_US // 1000, MIN_US)
