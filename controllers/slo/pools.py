"""Extension resourcePools of a NodeSLO: the configured pools with what the manager knows of them. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from api.crds.node_slo import POOL_NAME
from controllers.slo.layers import Plain

POOLS = "resourcePools"
"""Name of the extension."""
KEPT_SECONDS = 7 * 86_400.0
"""Time for which stated peaks outlast the process that predicted them."""
STEP_MILLICORES = 100
"""Peaks are stated as multiples of this, rounded up."""
SAME_RATIO = 0.1
"""Difference up to which peaks that are stated stay: forecasts move a little in each hour."""
PEAKS = "peakMillicores"
WORKLOADS = "workloads"
GRADE = "leastSensitivity"


def refused_names(extension: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the names of an extension's pools; nodes refuse the whole extension for one of them."""
    pools = extension.get("pools")
    listed = [pool for pool in pools if isinstance(pool, Mapping)] if isinstance(pools, list) else []
    names = [name for pool in listed if isinstance(name := pool.get("name"), str)]
    return [f"pools: {name[:80]!r} does not match {POOL_NAME}" for name in names if not re.search(POOL_NAME, name)]


def with_outlook(
    strategy: Mapping[str, Any],
    before: Any,
    peaks: Mapping[str, Sequence[int]],
    workloads: Mapping[str, Sequence[str]],
    *,
    keep: bool,
) -> Plain:
    """Return the extension as nodes read it: peaks where none are configured, and workloads in place of grades.

    `before` is the extension as it stands; with `keep` its peaks stay where there are none.
    """
    found = dict(strategy)
    pools = found.get("pools")
    if not isinstance(pools, list):
        return found
    earlier, members = _peaks(before), _workloads(before)
    made = []
    for pool in pools:
        if not isinstance(pool, Mapping):
            made.append(pool)
            continue
        own = {key: value for key, value in pool.items() if key != GRADE}
        name = str(own.get("name", ""))
        if not own.get(PEAKS):
            stated = _rounded(peaks.get(name), earlier.get(name), keep=keep)
            if stated:
                own[PEAKS] = stated
        if GRADE in pool and WORKLOADS not in own:
            # Absent is a node that this process has not heard of yet.
            own[WORKLOADS] = list(workloads[name]) if name in workloads else members.get(name, [])
        made.append(own)
    return {**found, "pools": made}


def _rounded(peaks: Sequence[int] | None, earlier: Sequence[int] | None, *, keep: bool) -> list[int] | None:
    if peaks is None:
        return list(earlier) if keep and earlier else None
    stated = [-(-peak // STEP_MILLICORES) * STEP_MILLICORES for peak in peaks]
    if earlier and len(earlier) == len(stated):
        same = (
            abs(new - old) <= max(STEP_MILLICORES, SAME_RATIO * old) for new, old in zip(stated, earlier, strict=True)
        )
        if all(same):
            return list(earlier)
    return stated


def _peaks(extension: Any) -> dict[str, list[int]]:
    """Return the peaks that an extension states, by pool; of anything else nothing."""
    return {
        name: peaks
        for name, pool in _pools(extension).items()
        if isinstance(peaks := pool.get(PEAKS), list) and all(type(peak) is int for peak in peaks)
    }


def _workloads(extension: Any) -> dict[str, list[str]]:
    return {
        name: members
        for name, pool in _pools(extension).items()
        if isinstance(members := pool.get(WORKLOADS), list) and all(type(each) is str for each in members)
    }


def _pools(extension: Any) -> dict[str, Mapping[str, Any]]:
    pools = extension.get("pools") if isinstance(extension, Mapping) else None
    listed = pools if isinstance(pools, list) else []
    return {str(pool.get("name", "")): pool for pool in listed if isinstance(pool, Mapping)}
