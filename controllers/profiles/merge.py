"""Sensitivity and aggressiveness of workloads from sums that nodes report; merging is addition. Pure.

A sum is of one victim, one neighbour, one resource, one kind of evidence and one bin of the victim's own load: time
together, the neighbour's pressure (share of the node's capacity that it used), the victim's loss, and their products.
Within a bin the loss grows with pressure p by `sensitivity x strength x p`. Measured blame and verified trials tell the
neighbour's part directly, so their line goes through the origin. A correlated loss is known as a whole only, against
the pressure of all neighbours together, and may be the load's own doing: there the line has an intercept and a term of
the load in each bin, so that only what moves with pressure at equal load counts, and it weighs less. What a unit of the
pressure of all neighbours harms depends on which of them it comes from: a correlated victim's neighbours count with the
part of that movement that is theirs, where this is told.

The slopes of all pairs are then split in two factors by alternating least squares. Confidence is the spread of the same
figure over sixteen groups of nodes, each left out once (jackknife): nodes are independent, intervals of one are not.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from detector.histograms import Rows, Values

GROUPS = 16
"""Of nodes, for the jackknife."""
T_90 = 1.753
"""Quantile of Student's distribution with 15 degrees of freedom for an interval of 90 %."""
ROUNDS = 20
FEW_ROUNDS = 4
"""From the solution of all groups on, for one with a group left out."""
ALL = -1
"""Neighbour of a sum whose pressure is that of all neighbours together: of evidence by correlation."""
_LEAST = 1e-12


class Evidence(IntEnum):
    """How a loss is known to be a neighbour's, the best last."""

    CORRELATED = 0
    DIRECT = 1
    """A blame table of the kernel side."""
    TRIAL = 2
    """The neighbour was restrained and the victim got better."""


TRUST = np.array([0.1, 1.0, 4.0])
"""Weight of each kind of evidence."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of some reports, shapes (rows,); rows of one key add up."""

    victims: Rows
    """Number of the victim's workload."""
    neighbours: Rows
    """Number of the neighbour's workload, or ALL. A correlated row of one neighbour tells its part in the pressure of
    all, which then stands in the place of the loss."""
    evidence: NDArray[np.int64]
    load_bins: NDArray[np.int64]
    nodes: Rows
    """Number of the node that reported."""
    seconds: Values
    pressure: Values
    """Pressure-seconds."""
    pressure_squares: Values
    lost: Values
    """Lost seconds."""
    lost_pressure: Values
    """Integral of the loss rate times the pressure."""
    load: Values
    """Integral of the victim's own load; so the three that follow, of its square and its products."""
    load_squares: Values
    load_pressure: Values
    load_lost: Values


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of each workload with its error, shapes (workloads,); NaN where nothing tells."""

    value: Values
    error: Values
    """Standard error; value +- T_90 x error covers the truth nine times in ten."""
    trials: NDArray[np.bool_]
    """Whether any of it rests on verified trials."""
    correlated: NDArray[np.bool_]
    """Whether all of it rests on correlation."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of all workloads on one resource."""

    sensitivity: Estimate
    """Lost seconds per second per unit of a mean neighbour's pressure."""
    strength: Estimate
    """Harm of a unit of its pressure in those of a mean neighbour's."""
    mean_pressure: Values
    """Pressure that one replica exerted; times strength it is the aggressiveness."""


def traits(sums: Sums, workloads: int, load_bins: int) -> Traits:
    """Return the traits of workloads `0 .. workloads - 1` on the resource that the sums are of."""
    neighbours_or_all = np.where(sums.neighbours == ALL, workloads, sums.neighbours)
    pairs, of_pair = np.unique(sums.victims * (workloads + 1) + neighbours_or_all, return_inverse=True)
    victims, neighbours = pairs // (workloads + 1), pairs % (workloads + 1)
    group = sums.nodes % GROUPS
    direct = _Direct(sums, of_pair, len(pairs))
    correlated = _Correlated(sums, of_pair, load_bins, len(pairs))

    def fit(left_out: int | None, begin: Values | None = None) -> tuple[Values, Values]:
        rows = None if left_out is None else group == left_out
        told, whole = direct.without(rows), correlated.without(rows)
        known = _Pairs(victims, neighbours, told[0] + whole[0], told[1] + whole[1], whole[2])
        return _factors(known, workloads, begin)

    sensitivity, strength = fit(None)
    without = [fit(group, strength) for group in range(GROUPS)]
    best = np.zeros((2, workloads + 1), np.bool_)
    any_direct = np.zeros((2, workloads + 1), np.bool_)
    for side, ids in enumerate((sums.victims, neighbours_or_all)):
        best[side, ids[sums.evidence == Evidence.TRIAL]] = True
        any_direct[side, ids[sums.evidence != Evidence.CORRELATED]] = True
    whole = sums.evidence != Evidence.TRIAL  # a trial tells of the use that went, not of all that there was
    seconds = np.bincount(neighbours_or_all[whole], weights=sums.seconds[whole], minlength=workloads + 1)[:workloads]
    pressure = np.bincount(neighbours_or_all[whole], weights=sums.pressure[whole], minlength=workloads + 1)[:workloads]
    best, any_direct = best[:, :workloads], any_direct[:, :workloads]
    return Traits(
        Estimate(sensitivity, _jackknife(sensitivity, [each[0] for each in without]), best[0], ~any_direct[0]),
        Estimate(strength, _jackknife(strength, [each[1] for each in without]), best[1], ~any_direct[1]),
        np.where(seconds > 0, pressure / np.maximum(seconds, _LEAST), np.nan),
    )


class _Direct:
    """Products of loss and pressure, and squares of pressure, by pair: of rows that tell the neighbour's part."""

    def __init__(self, sums: Sums, of_pair: NDArray[np.intp], pairs: int) -> None:
        self._rows = np.flatnonzero(sums.evidence != Evidence.CORRELATED)
        self._pair = of_pair[self._rows]
        trust = TRUST[sums.evidence[self._rows]]
        self._columns = [trust * each[self._rows] for each in (sums.lost_pressure, sums.pressure_squares)]
        self._pairs = pairs
        self._totals = [_added(self._pair, each, pairs) for each in self._columns]

    def without(self, rows: NDArray[np.bool_] | None) -> list[Values]:
        """Return both columns by pair, without some rows."""
        if rows is None:
            return self._totals
        own = rows[self._rows]
        return [
            total - _added(self._pair[own], each[own], self._pairs)
            for total, each in zip(self._totals, self._columns, strict=True)
        ]


class _Correlated:
    """The same at equal load, from rows that know the loss as a whole; and each neighbour's part in the pressure."""

    def __init__(self, sums: Sums, of_pair: NDArray[np.intp], load_bins: int, pairs: int) -> None:
        correlated = sums.evidence == Evidence.CORRELATED
        self._pairs = pairs
        self._wholes = np.flatnonzero(correlated & (sums.neighbours == ALL))
        bins = sums.victims * load_bins + sums.load_bins
        self._bins, self._bin = np.unique(bins[self._wholes], return_inverse=True)
        self._pair_of_bin = np.zeros(len(self._bins), np.intp)
        self._pair_of_bin[self._bin] = of_pair[self._wholes]
        columns = (
            *(sums.seconds, sums.pressure, sums.pressure_squares, sums.lost, sums.lost_pressure),
            *(sums.load, sums.load_squares, sums.load_pressure, sums.load_lost),
        )
        self._columns = [each[self._wholes] for each in columns]
        self._totals = [_added(self._bin, each, len(self._bins)) for each in self._columns]
        self._parts = np.flatnonzero(correlated & (sums.neighbours != ALL) & np.isin(bins, self._bins))
        keys, self._key = np.unique(of_pair[self._parts] * load_bins + sums.load_bins[self._parts], return_inverse=True)
        self._pair_of_key = keys // load_bins
        self._bin_of_key = np.zeros(len(keys), np.intp)
        self._bin_of_key[self._key] = np.searchsorted(self._bins, bins[self._parts])
        self._part_columns = [each[self._parts] for each in (sums.pressure, sums.lost_pressure, sums.load_pressure)]
        self._part_totals = [_added(self._key, each, len(keys)) for each in self._part_columns]

    def without(self, rows: NDArray[np.bool_] | None) -> list[Values]:
        """Return products, squares and parts by pair, without some rows."""
        moments = _less(self._totals, self._columns, self._bin, None if rows is None else rows[self._wholes])
        trust = TRUST[Evidence.CORRELATED]
        found = [_added(self._pair_of_bin, trust * each, self._pairs) for each in _centred(moments)]
        own = _less(self._part_totals, self._part_columns, self._key, None if rows is None else rows[self._parts])
        parts = _parts(own, [each[self._bin_of_key] for each in moments])
        return [*found, np.maximum(_added(self._pair_of_key, parts, self._pairs), 0.0)]


def _less(
    totals: list[Values], columns: list[Values], places: NDArray[np.intp], rows: NDArray[np.bool_] | None
) -> list[Values]:
    """Return sums without some rows."""
    if rows is None:
        return totals
    return [total - _added(places[rows], each[rows], len(total)) for total, each in zip(totals, columns, strict=True)]


def _parts(own: list[Values], moments: list[Values]) -> Values:
    """Return how pressures of neighbours moved with that of all, without what moves with the load; while a neighbour
    was elsewhere it exerted none."""
    own_pressure, products, with_own = own
    seconds, pressure, _, _, _, load, load_squares, load_pressure, _ = moments
    span = np.maximum(seconds, _LEAST)
    varying = np.maximum(load_squares - load * load / span, _LEAST)
    by_load = (with_own - own_pressure * load / span) * (load_pressure - load * pressure / span) / varying
    return np.asarray(products - own_pressure * pressure / span - by_load)


def _added(places: NDArray[np.intp], weights: Values, count: int) -> Values:
    return np.asarray(np.bincount(places, weights=weights, minlength=count), np.float64)


def _centred(moments: list[Values]) -> tuple[Values, Values]:
    """Return products of loss and pressure, and squares of pressure, without what moves with the load."""
    seconds, pressure, squares, lost, products, load, load_squares, load_pressure, load_lost = moments
    span = np.maximum(seconds, _LEAST)
    varying = np.maximum(load_squares - load * load / span, _LEAST)
    with_pressure = load_pressure - load * pressure / span
    with_lost = load_lost - load * lost / span
    centred = products - lost * pressure / span - with_lost * with_pressure / varying
    spread = squares - pressure * pressure / span - with_pressure * with_pressure / varying
    return centred, np.maximum(spread, 0.0)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """What is known of pairs of victim and neighbour, shapes (pairs,)."""

    victims: Rows
    neighbours: Rows
    """The number of workloads for all neighbours together."""
    products: Values
    squares: Values
    of_all: Values
    """How the neighbour's pressure moved with that of all, of correlated victims."""


def _factors(pairs: _Pairs, workloads: int, begin: Values | None) -> tuple[Values, Values]:
    """Return s and g with `products ~ s[victim] g[neighbour] squares`, the mean of g being 1."""
    victims, neighbours, products, squares = pairs.victims, pairs.neighbours, pairs.products, pairs.squares
    sensitivity, strength = np.zeros(workloads), np.ones(workloads + 1)
    if begin is not None:
        strength[:workloads] = np.nan_to_num(begin, nan=1.0)
    exerted = np.bincount(neighbours, weights=squares, minlength=workloads + 1)
    together = neighbours == workloads
    for _ in range(ROUNDS if begin is None else FEW_ROUNDS):
        g = strength[neighbours]
        g[together] = _strength_of_all(pairs, strength, exerted > 0)[victims[together]]
        sensitivity = _ratio(victims, g * products, g * g * squares, workloads)
        s = sensitivity[victims]
        strength = _ratio(neighbours, s * products, s * s * squares, workloads + 1)
        known = strength[:workloads] > 0
        scale = float(strength[:workloads][known].mean()) if known.any() else 1.0
        strength /= scale
        # All together are a mean neighbour, each weighed by what its pressure varies.
        heavy = exerted[:workloads] * known
        strength[workloads] = float(np.average(strength[:workloads], weights=heavy)) if heavy.sum() > 0 else 1.0
        sensitivity = sensitivity * scale
    told = np.bincount(victims, weights=squares, minlength=workloads) > 0
    exerts = exerted[:workloads] > 0
    return np.where(told, sensitivity, np.nan), np.where(exerts, strength[:workloads], np.nan)


def _strength_of_all(pairs: _Pairs, strength: Values, known: NDArray[np.bool_]) -> Values:
    """Return, by victim, the strength of all neighbours together: that of each of those known by its part."""
    part = pairs.of_all * known[pairs.neighbours]
    workloads = len(strength) - 1
    whole = np.bincount(pairs.victims, weights=part, minlength=workloads)
    mean = np.bincount(pairs.victims, weights=part * strength[pairs.neighbours], minlength=workloads)
    return np.where(whole > _LEAST, mean / np.maximum(whole, _LEAST), strength[workloads])


def _ratio(rows: Rows, tops: Values, bottoms: Values, count: int) -> Values:
    top = np.bincount(rows, weights=tops, minlength=count)
    bottom = np.bincount(rows, weights=bottoms, minlength=count)
    return np.where(bottom > _LEAST, np.maximum(top, 0.0) / np.maximum(bottom, _LEAST), 0.0)


def _jackknife(value: Values, without: list[Values]) -> Values:
    """Return the standard error from the values without each group."""
    stacked = np.stack(without)
    error: Values = np.sqrt((GROUPS - 1) / GROUPS * np.square(stacked - stacked.mean(axis=0)).sum(axis=0))
    return np.where(np.isfinite(value), error, np.nan)
