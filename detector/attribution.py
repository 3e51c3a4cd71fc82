"""Who is to blame: what was seen directly first, correlation second and labelled; where nothing explains it, nobody.

Shares are parts of the victim's loss and sum to at most 1. Two cgroups that look alike are never blamed for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from api.frame import KERNEL_ID, OTHER_ID
from api.verdicts import ANCESTOR, GONE, KERNEL, NOBODY, Culprit, How
from detector.blame import Floats
from detector.correlation import History, correlate
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

LEAST_SHARE = 0.01
"""Smaller parts are not listed."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Culprits by falling share, and the share of the loss that was seen directly to be a named one's."""

    culprits: tuple[Culprit, ...] = ()
    confidence: float = 0.0
    explained: Mapping[str, float] = field(default_factory=dict)
    """For a loss that other symptoms explain: the share of it that each of them does."""


class Attributor:
    """Answers for the cgroups of one tick."""

    def __init__(
        self,
        view: View,
        symptoms: Mapping[str, Symptom],
        signals: Mapping[str, Signal],
        history_of: Callable[[str], History | None],
    ) -> None:
        """`history_of` gives the past of a symptom that correlates."""
        self._view, self._symptoms, self._signals = view, symptoms, signals
        self._history_of = history_of
        self._histories: dict[str, History | None] = {}

    def of(self, name: str, rows: NDArray[np.intp], thresholds: Floats) -> list[Attribution]:
        """Blame for what the symptom `name` costs each of the rows; empty where a row loses nothing.

        `thresholds` are the losses above which a tick counts as harmed.
        """
        source, signal = self._symptoms[name].blame, self._signals[name]
        lost = signal.lost[rows]
        if source.named:
            whole = Attribution((Culprit(source.named, 1.0, How.DIRECT),), 1.0 if signal.measured else 0.0)
            return [whole if amount > 0 else Attribution() for amount in lost.tolist()]
        if source.ancestor_column:
            return [self._by_ancestor(row, source.ancestor_column, float(signal.lost[row])) for row in rows.tolist()]
        if source.explained:
            return [self._by_symptoms(name, row, limit) for row, limit in zip(rows.tolist(), thresholds, strict=True)]
        direct = self._from_table(source.table, rows, signal)
        others = self._correlated(name, rows, thresholds)
        return [
            _put_together(seen, suspected, measured=signal.measured) if amount > 0 else Attribution()
            for seen, suspected, amount in zip(direct, others, lost.tolist(), strict=True)
        ]

    def _from_table(self, table: str, rows: NDArray[np.intp], signal: Signal) -> list[dict[str, float]]:
        """Shares by path; amounts that exceed the whole (another span, rounding) are scaled down to it."""
        blame = self._view.blame(table) if table else None
        if blame is None:
            return [{} for _ in rows]
        ids = self._view.ids[rows]
        whole = (signal.lost if signal.whole is None else signal.whole)[rows]
        whole = np.maximum(np.nan_to_num(whole), blame.sums(ids))
        found = []
        for identity, amount in zip(ids.tolist(), whole.tolist(), strict=True):
            culprits, amounts = blame.of(identity)
            worth = amounts >= LEAST_SHARE * amount
            found.append(self._shares(culprits[worth].tolist(), (amounts[worth] / max(amount, 1e-300)).tolist()))
        return found

    def _shares(self, culprits: Sequence[int], shares: Sequence[float]) -> dict[str, float]:
        by_path: dict[str, float] = {}
        for culprit, share in zip(culprits, shares, strict=True):
            path = self._path(culprit)
            by_path[path] = by_path.get(path, 0.0) + share
        return by_path

    def _path(self, identity: int) -> str:
        if identity == KERNEL_ID:
            return KERNEL
        if identity == OTHER_ID:
            return NOBODY
        return self._view.path_of(identity) or GONE

    def _correlated(
        self, name: str, rows: NDArray[np.intp], thresholds: Floats
    ) -> Sequence[Sequence[tuple[str, float]]]:
        found: list[list[tuple[int, float]]] = [[] for _ in rows]
        view = self._view
        if self._symptoms[name].blame.published and view.cpi2 is not None:
            found = [view.cpi2.antagonists_of(row) for row in rows.tolist()]
        elif (past := self._history(name)) is not None:
            found = correlate(past, rows, thresholds, view.tree.leaves)
        return [[(view.cgroups[row].path, share) for row, share in one] for one in found]

    def _history(self, name: str) -> History | None:
        if name not in self._histories:
            self._histories[name] = self._history_of(name) if self._symptoms[name].blame.suspects else None
        return self._histories[name]

    def _by_ancestor(self, row: int, column: str, lost: float) -> Attribution:
        """The nearest ancestor for which the column is above zero."""
        if not lost > 0:
            return Attribution()
        path = ANCESTOR
        if self._view.has(column):
            amounts = self._view.rate(column)
            above = (each for each in self._view.tree.ancestors(row) if amounts[each] > 0)
            found = next(above, None)
            path = ANCESTOR if found is None else self._view.cgroups[found].path
        return Attribution((Culprit(path, 1.0, How.DIRECT),), 1.0)

    def _by_symptoms(self, name: str, row: int, threshold: float) -> Attribution:
        """The culprits of the symptoms that cost this cgroup time, as far as their losses reach."""
        lost = self._explaining(row)
        whole = max(float(self._signals[name].lost[row]), sum(lost.values()))
        worth = {other: amount / whole for other, amount in lost.items() if amount >= LEAST_SHARE * whole}
        parts = {other: self.of(other, np.array([row], dtype=np.intp), np.array([threshold]))[0] for other in worth}
        culprits: dict[tuple[str, How], float] = {}
        for other, part in parts.items():
            for each in part.culprits:
                key = (each.path, each.how)
                culprits[key] = culprits.get(key, 0.0) + each.share * worth[other]
        ranked = _ranked([Culprit(path, share, how) for (path, how), share in culprits.items()])
        return Attribution(ranked, sum((part.confidence * worth[other] for other, part in parts.items()), 0.0), worth)

    def _explaining(self, row: int) -> dict[str, float]:
        """What the symptoms that can name somebody cost, the worst of each group."""
        lost: dict[str, float] = {}
        group_of: dict[str, str] = {}
        for name, signal in self._signals.items():
            amount, symptom = float(signal.lost[row]), self._symptoms[name]
            rival = group_of.get(symptom.group, "")
            if not amount > lost.get(rival, 0.0) or symptom.blame.explained or symptom.blame == BlameSource():
                continue
            lost.pop(rival, None)
            lost[name] = amount
            if symptom.group:
                group_of[symptom.group] = name
        return lost


def _put_together(
    direct: Mapping[str, float], suspected: Iterable[tuple[str, float]], *, measured: bool
) -> Attribution:
    """Correlation shares what no table explains."""
    seen = min(sum(direct.values(), 0.0), 1.0)
    culprits = [Culprit(path, share, How.DIRECT) for path, share in direct.items()]
    if seen < 1.0:
        culprits += [Culprit(path, share * (1.0 - seen), How.CORRELATED) for path, share in suspected]
    named = min(sum((share for path, share in direct.items() if path != NOBODY), 0.0), 1.0)
    return Attribution(_ranked(culprits), named if measured else 0.0)


def _ranked(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    worth = [culprit for culprit in culprits if culprit.share >= LEAST_SHARE]
    return tuple(sorted(worth, key=lambda culprit: (-culprit.share, culprit.path)))
