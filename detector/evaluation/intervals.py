"""Bounds of what was counted: 95 % intervals of shares, and upper bounds of rates."""

import math
from statistics import NormalDist

COVERAGE = 0.95


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Bounds of a share by Wilson's score (JASA 22, 1927), which hold for few trials and for shares near 0 and 1."""
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + COVERAGE) / 2)
    share, spread = successes / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def most_events(events: int) -> float:
    """Upper bound of the mean of a Poisson variable of which so many were counted: no less likely than 5 %.

    None counted bounds it at 3.0 (the rule of three).
    """
    low, high = float(events), 10.0 + 3.0 * events
    for _ in range(60):
        mean = (low + high) / 2
        likely = sum(math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in range(events + 1))
        low, high = (mean, high) if likely > 1 - COVERAGE else (low, mean)
    return high
