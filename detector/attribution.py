"""Attribution of a loss to culprits: blame tables first, correlation second and labelled, else no culprit.

Shares are parts of the victim's loss and sum to at most 1. Two cgroups that look alike are never blamed for it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import is_below, is_within
from api.verdicts import ANCESTOR, GONE, OTHER, Culprit, How, groups_of
from detector.arrays import Floats, Ids
from detector.correlation import MIN_SHARE, History, correlate
from detector.limiters import Limiters
from detector.roll_up import LEAST_MEMBERS, LEAST_SHARE, SMALL_SHARE, Tree, roll_up
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View, ref_of

GUESSED = 0.5
"""Confidence where more than one limit further up may be the one that was run into."""
Shares: TypeAlias = list[tuple[str, float]]
"""Paths and parts of a loss."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Culprits by falling share, and the share of the loss that was seen directly to be a named one's."""

    culprits: tuple[Culprit, ...] = ()
    confidence: float = 0.0
    explained: Mapping[str, float] = field(default_factory=dict)
    """For a loss that other symptoms explain: the share of it that each of them does."""


class Attributor:
    """Attributions for the cgroups of one tick, each computed once."""

    def __init__(
        self,
        view: View,
        symptoms: Mapping[str, Symptom],
        signals: Mapping[str, Signal],
        thresholds: Mapping[str, Floats],
        history_of: Callable[[str], History | None],
    ) -> None:
        """`thresholds` are the losses of each symptom above which a tick counts as harmed, a row a cgroup.

        `history_of` gives the past of a symptom that correlates.
        """
        self._view, self._symptoms, self._signals = view, symptoms, signals
        self._thresholds, self._history_of = thresholds, history_of
        self._known: dict[str, dict[int, Attribution]] = {}

    def of(self, name: str, rows: NDArray[np.intp]) -> list[Attribution]:
        """Return the attribution of each row's loss by the symptom `name`; empty where a row loses nothing."""
        known = self._known.setdefault(name, {})
        wanted = rows.tolist()
        fresh = [row for row in wanted if row not in known]
        if fresh:
            known.update(zip(fresh, self._attribute(name, np.array(fresh, dtype=np.intp)), strict=True))
        return [known[row] for row in wanted]

    def _attribute(self, name: str, rows: NDArray[np.intp]) -> list[Attribution]:
        source, signal = self._symptoms[name].blame, self._signals[name]
        lost = signal.lost[rows]
        if source.named:
            whole = Attribution((Culprit(source.named, 1.0, How.DIRECT),), 1.0 if signal.measured else 0.0)
            return [whole if amount > 0 else Attribution() for amount in lost.tolist()]
        if source.ancestor_columns:
            limiters = Limiters(self._view, source)
            return [self._by_ancestor(row, source, limiters, signal) for row in rows.tolist()]
        if source.explained:
            return self._by_symptoms(lost, rows)
        direct = self._from_table(source.table, rows, signal)
        others = self._by_takers(source, rows) or self._correlated(name, rows)
        return [
            _combine(seen, suspected, measured=signal.measured) if amount > 0 else Attribution()
            for seen, suspected, amount in zip(direct, others, lost.tolist(), strict=True)
        ]

    def _from_table(self, table: str, rows: NDArray[np.intp], signal: Signal) -> list[Shares]:
        """Shares by path, the biggest first; amounts above the whole (another span, rounding) are scaled down to it."""
        blame = self._view.blame(table) if table else None
        if blame is None:
            return [[] for _ in rows]
        ids = self._view.ids[rows]
        whole = (signal.lost if signal.whole is None else signal.whole)[rows]
        whole = np.maximum(np.nan_to_num(whole), blame.sums(ids))
        starts, ends = blame.span(ids)
        lengths = ends - starts
        victims = np.repeat(np.arange(len(rows)), lengths)
        places = np.arange(len(victims)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + starts[victims]
        shares = ratio(blame.amounts[places], whole[victims])
        names = self._view.names
        culprits = blame.culprits[places]
        unknown = np.array([culprit not in names for culprit in culprits.tolist()], dtype=np.bool_)
        rolled, shares = self._rolled_up(rows, victims, culprits, np.where(unknown, 1.0, shares), shares)
        listed = np.flatnonzero((shares >= MIN_SHARE) | unknown)
        order = listed[np.lexsort((culprits[listed], -shares[listed], victims[listed]))]
        bounds = np.searchsorted(victims[order], np.arange(len(rows) + 1)).tolist()
        paths = [names.get(culprit, GONE) for culprit in culprits[order].tolist()]
        named = list(zip(paths, shares[order].tolist(), strict=True))
        rest = np.bincount(victims, np.where((shares >= MIN_SHARE) | unknown, 0.0, shares), minlength=len(rows))
        return [
            _merged(named[first:last], [*above, (OTHER, others)] if others >= SMALL_SHARE else above)
            for (first, last), above, others in zip(pairwise(bounds), rolled, rest.tolist(), strict=True)
        ]

    def _rolled_up(
        self, rows: NDArray[np.intp], victims: NDArray[np.intp], culprits: Ids, sizes: Floats, shares: Floats
    ) -> tuple[list[Shares], Floats]:
        """The cgroup or group that many small culprits of a victim have in common, and the shares without theirs."""
        small = np.flatnonzero(sizes < SMALL_SHARE)
        found: list[Shares] = [[] for _ in rows]
        counts = np.bincount(victims[small], minlength=len(rows))
        sums = np.bincount(victims[small], shares[small], minlength=len(rows))
        many = np.flatnonzero((counts >= LEAST_MEMBERS) & (sums >= LEAST_SHARE)).tolist()
        if not many:
            return found, shares
        known, members = np.unique(culprits[small], return_inverse=True)
        paths, left = [self._view.names[each] for each in known.tolist()], shares.copy()
        tree = Tree(paths, [groups_of(self._view.ref(path)) for path in paths])
        bounds = np.searchsorted(victims[small], np.arange(len(rows) + 1))
        for number in many:
            of_victim = slice(bounds[number], bounds[number + 1])
            victim, own = self._view.cgroups[rows[number]], small[of_victim]
            groups = groups_of(ref_of(victim))
            found[number], left[own] = roll_up(victim.path, tree, members[of_victim], shares[own], groups)
        return found, left

    def _by_takers(self, source: BlameSource, rows: NDArray[np.intp]) -> list[Shares]:
        """Shares of what others took in the tick; empty where nothing was taken, or that is not known."""
        if not source.takers or not self._view.has(source.takers):
            return []
        taken = np.maximum(np.nan_to_num(self._view.rate(source.takers)), 0.0)
        if source.takers_below:
            taken = np.where(self._view.tree.leaves, taken, 0.0)
        whole = float(taken.sum())
        heaviest = np.flatnonzero(taken > MIN_SHARE * whole).tolist()
        paths = {row: self._view.cgroups[row].path for row in heaviest}
        found: list[Shares] = []
        for victim in rows.tolist():
            others = [row for row in heaviest if row != victim and not self._is_own(row, victim)]
            own = [victim, *(row for row in heaviest if row != victim and row not in others)]
            by_others = whole - float(taken[own].sum())
            enough = by_others >= source.least_taken
            found.append([(paths[row], float(taken[row]) / by_others) for row in others] if enough else [])
        return found if whole else []

    def _correlated(self, name: str, rows: NDArray[np.intp]) -> list[Shares]:
        view, source = self._view, self._symptoms[name].blame
        found: list[list[tuple[int, float]]] = [[] for _ in rows]
        past = self._history_of(name) if source.suspects else None
        if source.published and view.cpi2 is not None:
            found = [view.cpi2.antagonists_of(row) for row in rows.tolist()]
        elif past is not None:
            found = correlate(past, rows, self._thresholds[name][rows])
        return [
            [(view.cgroups[row].path, share) for row, share in one if not self._is_own(row, victim)]
            for victim, one in zip(rows.tolist(), found, strict=True)
        ]

    def _is_own(self, row: int, victim: int) -> bool:
        """A subtree of one's own is no neighbour."""
        return victim in self._view.tree.inner and is_below(
            self._view.cgroups[row].path, self._view.cgroups[victim].path
        )

    def _by_ancestor(self, row: int, source: BlameSource, limiters: Limiters, signal: Signal) -> Attribution:
        """The users of the limit further up."""
        if not signal.lost[row] > 0:
            return Attribution()
        view, confidence = self._view, 1.0 if signal.measured else 0.0
        found, is_certain = limiters.above(row)
        if found is None:
            return Attribution((Culprit(ANCESTOR, 1.0, How.DIRECT),), confidence)
        used = view.rate(source.used) if source.used and view.has(source.used) else np.zeros(len(view.ids))
        leaves = view.tree.leaves_below(found)
        amounts = np.maximum(np.nan_to_num(used[leaves]), 0.0)
        shares = amounts / max(float(amounts.sum()), float(np.finfo(np.float64).tiny))
        victim = view.cgroups[row].path
        others = [
            Culprit(path, share, source.used_how)
            for leaf, share in zip(leaves.tolist(), shares.tolist(), strict=True)
            if share >= MIN_SHARE and not is_within(path := view.cgroups[leaf].path, victim)
        ]
        how = How.DIRECT if is_certain else How.CORRELATED
        own = Culprit(view.cgroups[found].path, 1.0 - sum(each.share for each in others), how)
        return Attribution(_ranked([*others, own]), confidence if is_certain else confidence * GUESSED)

    def _by_symptoms(self, lost: Floats, rows: NDArray[np.intp]) -> list[Attribution]:
        """The culprits of the symptoms that cost these cgroups time, as far as their losses reach."""
        costs = self._costs(rows)
        whole = np.maximum(lost, np.sum(list(costs.values()), axis=0)) if costs else lost
        found: list[_Explained] = [_Explained() for _ in rows]
        for name, amounts in costs.items():
            parts = ratio(amounts, whole)
            listed = np.flatnonzero(parts >= MIN_SHARE)
            for place, part, blamed in zip(
                listed.tolist(), parts[listed].tolist(), self.of(name, rows[listed]), strict=True
            ):
                found[place].add(name, part, blamed)
        return [one.attribution() for one in found]

    def _costs(self, rows: NDArray[np.intp]) -> dict[str, Floats]:
        """Losses of the rows by each symptom that can name a culprit; of a group only the worst counts."""
        costs: dict[str, Floats] = {}
        groups: dict[str, list[str]] = {}
        for name, signal in self._signals.items():
            symptom = self._symptoms[name]
            if not symptom.blame.explained and symptom.blame != BlameSource():
                costs[name] = np.maximum(np.nan_to_num(signal.lost[rows]), 0.0)
                groups.setdefault(symptom.group or name, []).append(name)
        for names in groups.values():
            worst = np.argmax([costs[name] for name in names], axis=0)
            for number, name in enumerate(names):
                costs[name] = np.where(worst == number, costs[name], 0.0)
        return costs


class _Explained:
    """The culprits of one cgroup's symptoms, added up."""

    def __init__(self) -> None:
        self.shares: dict[tuple[str, How], float] = {}
        self.confidence = 0.0
        self.parts: dict[str, float] = {}

    def add(self, name: str, part: float, blamed: Attribution) -> None:
        """Add the culprits of a symptom that explains this part of the loss."""
        self.parts[name] = part
        self.confidence += blamed.confidence * part
        for culprit in blamed.culprits:
            key = (culprit.path, culprit.how)
            self.shares[key] = self.shares.get(key, 0.0) + culprit.share * part

    def attribution(self) -> Attribution:
        """The sum."""
        culprits = [Culprit(path, share, how) for (path, how), share in self.shares.items()]
        return Attribution(_ranked(culprits), self.confidence, self.parts)


def _merged(shares: Shares, above: Shares) -> Shares:
    """Both, each name once, the biggest first; all of no name become one, for many short lives make a big culprit."""
    gone = [share for path, share in shares if path == GONE]
    if not gone and not above:
        return shares
    sums: dict[str, float] = {}
    for path, share in (*shares, *above):
        sums[path] = sums.get(path, 0.0) + share
    whole = [(path, share) for path, share in sums.items() if share >= MIN_SHARE or path != GONE]
    return sorted(whole, key=lambda one: (-one[1], one[0]))


def _combine(direct: Shares, suspected: Shares, *, measured: bool) -> Attribution:
    """Combine both: correlation divides the part that no table explains."""
    seen = named = 0.0
    for path, share in direct:
        seen += share
        named += 0.0 if path == OTHER else share
    culprits = tuple([Culprit(path, share, How.DIRECT) for path, share in direct])
    if suspected and seen < 1.0:
        others = [Culprit(path, share * (1.0 - seen), How.CORRELATED) for path, share in suspected]
        culprits = _ranked([*culprits, *others])
    return Attribution(culprits, min(named, 1.0) if measured else 0.0)


def _ranked(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    listed = [culprit for culprit in culprits if culprit.share >= MIN_SHARE]
    return tuple(sorted(listed, key=lambda culprit: (-culprit.share, culprit.path)))
