"""A model of how a kernel divides CPUs, or the time of a disk, among cgroups: what an action does to others.

Weighted max-min fairness down the tree, which is what group scheduling comes to over some periods
(kernel/sched/fair.c): at each cgroup the children that want more share in proportion to their weights, and what one of
them leaves goes to its siblings first. A subtree gets at most its limit, a cgroup at most what its threads want, and
CPUs serve those only that may run on them: cgroups confined to a set of CPUs get no more than these are (Hall's
condition, so the division is exact for any masks).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import lineage, parent

IDLE_WEIGHT = 3 / 1024 * 100
"""WEIGHT_IDLEPRIO of kernel/sched/sched.h in the unit of cpu.weight."""
_CLOSE = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sharing:
    """What one cgroup asks for and how it is bounded."""

    wants: float = 0.0
    """CPUs, or parts of a disk's time, that its own threads would use."""
    weight: float = 100.0
    limit: float = math.inf
    """Of it and all below it."""
    cpus: frozenset[int] | None = None
    """It may run on these; None is on those of its parent."""
    is_frozen: bool = False


def divide(cgroups: Mapping[str, Sharing], cpus: Sequence[int]) -> dict[str, float]:
    """Return what each cgroup that wants anything gets, by path."""
    busy = [path for path, one in cgroups.items() if one.wants > 0 and not _is_frozen(path, cgroups)]
    if not busy:
        return {path: 0.0 for path, one in cgroups.items() if one.wants > 0}
    # The threads of a cgroup compete with its children as one more child.
    nodes = ["/", *sorted({each for path in busy for each in lineage(path)} - {"/"}, key=lambda path: path.count("/"))]
    number = {path: index for index, path in enumerate(nodes)}
    count = len(nodes)
    above = np.array(
        [0, *(number[parent(path)] for path in nodes[1:]), *(number[path] for path in busy)], dtype=np.intp
    )
    weights = np.array([cgroups.get(path, Sharing()).weight for path in nodes] + [100.0] * len(busy))
    limits = np.array([cgroups.get(path, Sharing()).limit for path in nodes])
    wants = np.array([cgroups[path].wants for path in busy])
    depth = [
        0,
        *(path.count("/") for path in nodes[1:]),
        *((0 if path == "/" else path.count("/")) + 1 for path in busy),
    ]
    levels = [np.flatnonzero(np.array(depth) == level) for level in range(1, max(depth) + 1)]
    masks = np.array([_mask(path, cgroups, cpus) for path in busy])
    subsets = np.arange(1 << len(cpus))
    within = ((masks[np.newaxis, :] & ~subsets[:, np.newaxis]) == 0).astype(np.float64)
    sizes = np.array([int(each).bit_count() for each in subsets], dtype=np.float64)
    return dict(zip(busy, _fill(above, weights, limits, wants, levels, within, sizes, count), strict=True)) | {
        path: 0.0 for path, one in cgroups.items() if one.wants > 0 and path not in number
    }


def _fill(
    above: NDArray[np.intp],
    weights: Floats,
    limits: Floats,
    wants: Floats,
    levels: Sequence[NDArray[np.intp]],
    within: Floats,
    sizes: Floats,
    count: int,
) -> list[float]:
    """Raise all rates in proportion to their shares until each cgroup meets a bound."""
    rates = np.zeros(len(wants))
    active = np.ones(len(wants), dtype=np.bool_)
    below = _descendants(above, levels, len(wants), count)
    while active.any():
        has_active = below @ active > 0
        is_active = np.concatenate([has_active, active])
        shares = _shares(np.where(is_active, weights, 0.0), above, levels)
        speeds = np.where(active, shares[count:], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            to_want = np.where(active, (wants - rates) / speeds, np.inf)
            to_limit = np.where(has_active, (limits - below @ rates) / shares[:count], np.inf)
            crowd = within @ speeds
            to_full = np.where(crowd > _CLOSE, (sizes - within @ rates) / crowd, np.inf)
        step = max(min(to_want.min(), to_limit.min(), to_full.min()), 0.0)
        rates += speeds * step
        done = active & (to_want <= step + _CLOSE)
        done |= active & below[to_limit <= step + _CLOSE].any(axis=0)
        done |= active & within[to_full <= step + _CLOSE].any(axis=0)
        active &= ~done
    return rates.tolist()


def _descendants(above: NDArray[np.intp], levels: Sequence[NDArray[np.intp]], busy: int, count: int) -> Floats:
    """Which of the busy cgroups live in each cgroup, as ones."""
    below = np.zeros((count + busy, busy))
    below[count:] = np.eye(busy)
    for level in reversed(levels):
        np.add.at(below, above[level], below[level])
    return below[:count]


def _shares(weights: Floats, above: NDArray[np.intp], levels: Sequence[NDArray[np.intp]]) -> Floats:
    whole = np.bincount(above[1:], weights[1:], minlength=len(weights))[above]
    parts = np.divide(weights, whole, out=np.zeros(len(weights)), where=whole > 0)
    shares = np.zeros(len(weights))
    shares[0] = 1.0
    for level in levels:
        shares[level] = shares[above[level]] * parts[level]
    return shares


def _mask(path: str, cgroups: Mapping[str, Sharing], cpus: Collection[int]) -> int:
    """CPUs as bits; a list that leaves none of the parent's counts as the parent's, as in the kernel."""
    places = {cpu: bit for bit, cpu in enumerate(cpus)}
    left = frozenset(cpus)
    for each in reversed(lineage(path)):
        own = cgroups.get(each, Sharing()).cpus
        left = (left & own or left) if own is not None else left
    return sum(1 << places[cpu] for cpu in left)


def _is_frozen(path: str, cgroups: Mapping[str, Sharing]) -> bool:
    return any(cgroups[each].is_frozen for each in lineage(path) if each in cgroups)
