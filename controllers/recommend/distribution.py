"""What containers used, as WorkloadProfiles state it: the live histograms in thousandths of their weight. Pure.

The sums of the weights are rounded, not the weights, so that every percentile stays within a thousandth of its place.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from api.crds.analysis import MAX_USAGE_CONTAINERS, ContainerUsage, UsageHistogram
from controllers.recommend.estimates import DEFAULTS, confidence
from controllers.recommend.outlook import ObservedUsage
from controllers.recommend.usage import CPU_BUCKETS, MEMORY_BUCKETS
from detector.histograms import Buckets, DecayingHistograms, Rows

SHARES = 1000
LEAST_DAYS = 0.02
"""Confidence from which use is stated: half an hour."""
SURE_DAYS = 1.0
"""Confidence from which what was found here replaces what was published before a restart."""
CHANGED = 0.1
"""Relative change of a percentile from which a reader would act otherwise."""
COMPARED = (0.5, 0.95)
"""Percentiles by which two distributions are compared."""
_AT_ONCE = 4096
"""Rows: what is computed of them takes 6 MB."""


def usage_of(observed: ObservedUsage, workloads: Iterable[str]) -> dict[str, list[ContainerUsage]]:
    """Return the use of containers by workload, of those with enough samples: the best known, in order of name."""
    groups = [
        (name, container, row)
        for name in workloads
        if name in observed.rows
        for container, row in sorted(observed.aggregates.get(observed.rows[name], {}).items())
        if row < len(observed.usage)
    ]
    rows = np.array([row for _, _, row in groups], np.intp)
    days = np.round(confidence(observed.usage, rows, DEFAULTS.confidence_seconds), 3)
    stated = np.flatnonzero(days >= LEAST_DAYS)
    cpu, memory = (_histograms(each, rows[stated]) for each in (observed.usage.cpu, observed.usage.memory))
    found: dict[str, list[ContainerUsage]] = {}
    for number, place in enumerate(stated.tolist()):
        name, container, _ = groups[place]
        each = ContainerUsage(container=container, days=float(days[place]), cpu=cpu[number], memory=memory[number])
        found.setdefault(name, []).append(each)
    return {name: _best(each) for name, each in found.items()}


def sound(usage: Sequence[ContainerUsage]) -> list[ContainerUsage]:
    """Return what can be read of a published list: any account with the right to write it may have done so."""
    return [
        each
        for each in usage[:MAX_USAGE_CONTAINERS]
        if 0 <= each.days < math.inf and _fits(each.cpu, CPU_BUCKETS) and _fits(each.memory, MEMORY_BUCKETS)
    ]


def better(published: Sequence[ContainerUsage], found: Sequence[ContainerUsage]) -> list[ContainerUsage]:
    """Return what was found here, once as much stands behind it, or a day: what was published until then."""
    before = sound(published)
    known = max((each.days for each in found), default=0.0)
    return before if known < min(max((each.days for each in before), default=0.0), SURE_DAYS) else list(found)


def quantile(histogram: UsageHistogram, buckets: Buckets, share: float) -> float:
    """Return a percentile in the unit of the buckets; NaN where nothing was measured."""
    if not histogram.shares:
        return math.nan
    sums = list(accumulate(histogram.shares))
    found = min(bisect_left(sums, share * sums[-1]), len(sums) - 1)
    return float(buckets.estimates[histogram.first + found])


def differs(before: Sequence[ContainerUsage], after: Sequence[ContainerUsage]) -> bool:
    """Return whether a percentile moved by a tenth, the history became twice as long, or a container came or went."""
    old, new = ({each.container: each for each in usage} for usage in (sound(before), after))
    return old.keys() != new.keys() or any(
        after.days > 2 * before.days
        or any(
            # What was measured on neither side is no difference.
            abs(left - right) > CHANGED * max(left, right) or math.isnan(left) != math.isnan(right)
            for left, right in zip(_percentiles(before), _percentiles(after), strict=True)
        )
        for before, after in ((old[name], new[name]) for name in old)
    )


def told(each: ContainerUsage) -> str:
    """Return a line about one container."""
    (cpu, cpu_high), (memory, memory_high) = _percentiles(each)[:2], _percentiles(each)[2:]
    parts = []
    if each.cpu.shares:
        parts.append(f"CPU p50 {cpu:.3g}, p95 {cpu_high:.3g} cores")
    if each.memory.shares:
        parts.append(f"memory p50 {memory / 2**20:.4g}, p95 {memory_high / 2**20:.4g} MiB")
    return f"use of {each.container}: {'; '.join(parts) or 'not measured'}; from {each.days:.3g} days of samples"


def _percentiles(each: ContainerUsage) -> list[float]:
    return [
        quantile(histogram, buckets, share)
        for histogram, buckets in ((each.cpu, CPU_BUCKETS), (each.memory, MEMORY_BUCKETS))
        for share in COMPARED
    ]


def _best(usage: Sequence[ContainerUsage]) -> list[ContainerUsage]:
    most = sorted(usage, key=lambda each: -each.days)[:MAX_USAGE_CONTAINERS]
    return sorted(most, key=lambda each: each.container)


def _fits(histogram: UsageHistogram, buckets: Buckets) -> bool:
    shares = histogram.shares
    fits = 0 <= histogram.first <= buckets.count - len(shares) and all(0 <= each <= SHARES for each in shares)
    return fits and (not shares or sum(shares) > 0)


def _histograms(source: DecayingHistograms, rows: Rows) -> list[UsageHistogram]:
    """Return rows as they are published, without the empty buckets at both ends."""
    made: list[UsageHistogram] = []
    for begin in range(0, len(rows), _AT_ONCE):
        some = rows[begin : begin + _AT_ONCE]
        weights = source.weights[some]
        total = np.where(source.is_empty(some), np.inf, weights.sum(axis=1))
        sums = np.rint(weights.cumsum(axis=1) / total[:, None] * SHARES).astype(np.int64)
        shares = np.diff(sums, axis=1, prepend=0)
        filled = shares > 0
        firsts, ends = filled.argmax(axis=1), source.buckets.count - filled[:, ::-1].argmax(axis=1)
        for number, (first, end) in enumerate(zip(firsts.tolist(), ends.tolist(), strict=True)):
            known = filled[number, first]
            listed = shares[number, first:end].tolist() if known else []
            made.append(UsageHistogram(first=first if known else 0, shares=listed))
    return made
