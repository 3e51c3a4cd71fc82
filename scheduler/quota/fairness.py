"""Fair runtime of sibling quotas: each keeps what it is guaranteed, the idle rest is lent out by weight.

All amounts are integers of one resource in its smallest unit (millicores, bytes, devices). Python integers
are unbounded, so `weight * remaining` is exact however large the weights are.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """One quota's claim in the division among its siblings, for one resource."""

    name: str
    request: int
    """Limited request: what the quota's pods ask for, capped by its maximum."""
    floor: int
    """Kept in any case: the larger of the (scaled) minimum and the guarantee."""
    weight: int
    lends: bool = True
    """False keeps the floor even while the pods ask for less."""


def largest_remainder(amount: int, weights: Sequence[int]) -> list[int]:
    """Split `amount` in proportion to `weights`; the parts are integers and sum to `amount`.

    Units left over by flooring go one each to the largest fractions, ties to the earlier position. All
    weights zero: nothing is given out.
    """
    total_weight = sum(weights)
    if total_weight <= 0 or amount <= 0:
        return [0] * len(weights)
    parts, fractions = [], []
    for position, weight in enumerate(weights):
        whole, rest = divmod(weight * amount, total_weight)
        parts.append(whole)
        fractions.append((-rest, position))
    for _, position in sorted(fractions)[: amount - sum(parts)]:
        parts[position] += 1
    return parts


def fair_runtimes(total: int, claims: Sequence[QuotaShare]) -> dict[str, int]:
    """Runtime of each claim out of `total`: first the floors, then the rest by weight while any claim is unmet.

    A claim below its floor lends the difference (unless it does not lend). Floors are kept even when they
    exceed `total`; otherwise the runtimes sum to at most `total`.
    """
    runtime = {claim.name: _kept(claim) for claim in claims}
    hungry = sorted((c for c in claims if c.request > c.floor and c.weight > 0), key=lambda c: c.name)
    remaining = total - sum(runtime.values())
    while remaining > 0 and hungry:
        parts = largest_remainder(remaining, [claim.weight for claim in hungry])
        remaining, still_hungry = 0, []
        for claim, part in zip(hungry, parts, strict=True):
            offered = runtime[claim.name] + part
            runtime[claim.name] = min(offered, claim.request)
            remaining += offered - runtime[claim.name]
            if offered < claim.request:
                still_hungry.append(claim)
        hungry = still_hungry
    return runtime


def _kept(claim: QuotaShare) -> int:
    if claim.request > claim.floor or not claim.lends:
        return claim.floor
    return claim.request


@dataclass(frozen=True, slots=True)
class Minimum:
    """A child's configured minimum of one resource, and whether it may shrink with the parent's total."""

    name: str
    amount: int
    scales: bool = True


def scaled_minimums(total: int, minimums: Sequence[Minimum]) -> dict[str, int]:
    """Minimums that `total` can honour: unchanged while they fit, else shrunk in proportion.

    Children that do not scale keep theirs; the others share what those leave, rounded down, never below zero.
    """
    scaled = {minimum.name: minimum.amount for minimum in minimums}
    if sum(scaled.values()) <= total:
        return scaled
    fixed = sum(minimum.amount for minimum in minimums if not minimum.scales)
    scaling = [minimum for minimum in minimums if minimum.scales]
    scaling_sum = sum(minimum.amount for minimum in scaling)
    left = max(total - fixed, 0)
    for minimum in scaling:
        scaled[minimum.name] = left * minimum.amount // scaling_sum if scaling_sum else 0
    return scaled
