"""One pod, one snapshot: to a row, or to the reasons against every row.

What an attempt costs: `ClassResult` holds a class's combined filter bits and score totals for all rows; an attempt
brings the rows up to date that changed since the class was last asked, then takes the largest total. Only
plugins of cluster scope and scores that are normalised over the feasible rows are worked out in full.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.framework import Attempt, Bits, Failure, Plugin, Reason, Restored, Scope, Scores
from scheduler.profile import Enabled

AnyPlugin: TypeAlias = Plugin[Any]

BARRED = -1
"""Total of a row that cannot take the pod."""

REASON_BITS = 62
"""Reasons a class can tell apart; what exceeds them shares the last bit."""

POINTS = (
    "pre_filter",
    "restore",
    "prefer",
    "pre_score",
    "post_filter",
    "reserve",
    "unreserve",
    "permit",
    "pre_bind",
    "bind",
    "post_bind",
)
"""Extension points of an attempt that only their definers are called for."""

KEPT_CLASSES = 256
"""Classes whose results are kept; each costs 24 bytes per node and normalised score."""


@dataclass(slots=True, eq=False)
class BoundPlugin:
    """A plugin with the spec of one class; `offset` is the place of its reasons among the class's."""

    plugin: AnyPlugin
    spec: Any
    weight: int = 1
    offset: int = 0


@dataclass(slots=True, eq=False)
class ClassResult:
    """What is known about one class of pods, row by row."""

    judges: list[BoundPlugin]
    """Every plugin that has something to say about the class, in rank order."""
    reasons: tuple[Reason, ...]
    bits: Bits
    totals: Scores
    """Weighted sum of node-scope scores, BARRED where a node-scope filter rejects or no node is."""
    raw: list[Scores]
    """Per judge of `normalized_score`, its scores before normalisation."""
    generation: int = -1
    points: dict[str, list[BoundPlugin]] = field(default_factory=dict)
    """The judges that define each extension point; filters and scores under the names in `_roles`."""

    def at(self, point: str) -> list[BoundPlugin]:
        """The judges of a point, in rank order."""
        return self.points.get(point, _NOBODY)


_NOBODY: list[BoundPlugin] = []
_ROLES: dict[type[AnyPlugin], tuple[str, ...]] = {}


@dataclass(slots=True, eq=False)
class Evaluation:
    """What the filters and scores say about all rows."""

    kept: ClassResult
    totals: Scores
    """int64[rows_used]; BARRED where the pod cannot go."""
    bits: Bits
    reason: Reason | None = None

    @property
    def failure(self) -> Failure:
        """The reasons, for when no row is feasible."""
        return Failure(self.kept.reasons, self.bits, self.reason)


class Cycle:
    """Finds the row for a pod. `nominated(row)` names pods that wait for room on a row."""

    def __init__(
        self,
        snapshot: Snapshot,
        enabled: Sequence[Enabled],
        *,
        nominated: Callable[[Row], Iterable[PodInfo]] | None = None,
        nominated_rows: Callable[[], Iterable[Row]] = tuple,
        seed: int = 0,
    ) -> None:
        self.snapshot = snapshot
        self.enabled = enabled
        self._nominated = nominated
        self._nominated_rows = nominated_rows
        self._random = random.Random(seed)
        self._kept: OrderedDict[PodClass, ClassResult] = OrderedDict()

    def invalidate(self) -> None:
        """Forget every spec and result."""
        self._kept.clear()

    def attempt(self, info: PodInfo, now: float) -> Attempt:
        """Start an attempt."""
        return Attempt(info, self.snapshot, now)

    def evaluate(self, attempt: Attempt, *, prefer: bool = True) -> Evaluation:
        """Filter and score all rows for the pod."""
        kept = self.keep(attempt.pod)
        n = self.snapshot.rows_used
        for judge in kept.at("pre_filter"):
            reason = judge.plugin.pre_filter(attempt, judge.spec)
            if reason is not None:
                barred = np.full(n, BARRED, dtype=np.int64)
                return Evaluation(kept, barred, np.zeros(n, dtype=np.int64), _named(reason, judge))
        if kept.at("restore"):
            attempt.restored = _restored(kept, attempt)
        self._refresh(kept, attempt)
        evaluation = Evaluation(kept, kept.totals[:n], kept.bits[:n])
        self._apply_cluster_filters(attempt, evaluation)
        self._respect_nominated(attempt, evaluation)
        if prefer and kept.at("prefer") and self._preferred(attempt, evaluation):
            return evaluation
        self._apply_full_scores(attempt, evaluation)
        return evaluation

    def choose(self, evaluation: Evaluation) -> Row | None:
        """A row with the largest total, drawn evenly among equals; None when no row is feasible."""
        totals = evaluation.totals
        if totals.shape[0] == 0:
            return None
        best = int(totals.argmax())
        peak = totals[best]
        if peak <= BARRED:
            return None
        ties = np.flatnonzero(totals == peak)
        count = ties.shape[0]
        return best if count == 1 else int(ties[int(self._random.random() * count)])

    def fits(self, attempt: Attempt, row: Row) -> bool:
        """Whether every filter passes the row as the snapshot stands, and the pods nominated to it fit too."""
        if not self.feasible_on(attempt, row):
            return False
        others = self._rivals(attempt.pod, row)
        return not others or self._fits_beside(attempt, row, others)

    def feasible_on(self, attempt: Attempt, row: Row) -> bool:
        """Whether every filter passes the row as the snapshot stands at this moment."""
        rows = slice(row, row + 1)
        kept = self.keep(attempt.pod)
        for judge in kept.at("node_filter") + kept.at("cluster_filter"):
            bits = judge.plugin.filter(attempt, judge.spec, rows)
            if bits is not None and bits[0]:
                return False
        return bool(self.snapshot.live[row])

    def scores_by_plugin(self, attempt: Attempt, rows: NDArray[np.intp]) -> dict[str, Scores]:
        """Weighted score of each plugin on the rows, for people to read."""
        kept = self.keep(attempt.pod)
        n = self.snapshot.rows_used
        feasible = kept.totals[:n] > BARRED
        table: dict[str, Scores] = {}
        for judge in kept.at("node_score") + kept.at("normalized_score") + kept.at("cluster_score"):
            scores = judge.plugin.score(attempt, judge.spec, slice(0, n))
            if scores is None and judge.plugin.scope is Scope.NODE:
                scores = np.zeros(n, dtype=np.int64)
            if scores is not None:
                scores = judge.plugin.normalize(attempt, judge.spec, scores, feasible)
                table[judge.plugin.name] = scores[rows] * judge.weight
        return table

    # Internals

    def keep(self, info: PodInfo) -> ClassResult:
        """What is known about the pod's class, prepared on first sight."""
        kept = self._kept.get(info.cls)
        capacity = self.snapshot.capacity
        if kept is None or kept.bits.shape[0] != capacity:
            self.snapshot.vector(info)
            kept = self._kept[info.cls] = _prepared(self.enabled, info, capacity)
            if len(self._kept) > KEPT_CLASSES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(info.cls)
        return kept

    def _refresh(self, kept: ClassResult, attempt: Attempt) -> None:
        snapshot = self.snapshot
        rows: Rows | None = snapshot.all_rows if kept.generation < 0 else snapshot.changed_since(kept.generation)
        kept.generation = snapshot.generation
        if rows is None:
            return
        if isinstance(rows, slice) and rows.stop - rows.start == 1:
            _judge_row(kept, attempt, rows)
        else:
            _judge_rows(kept, attempt, rows)

    def _apply_cluster_filters(self, attempt: Attempt, evaluation: Evaluation) -> None:
        rows = self.snapshot.all_rows
        for judge in evaluation.kept.at("cluster_filter"):
            bits = judge.plugin.filter(attempt, judge.spec, rows)
            if bits is None:
                continue
            barred = bits != 0
            evaluation.bits = np.where(evaluation.bits == 0, bits << judge.offset, evaluation.bits)
            evaluation.totals = np.where(barred, BARRED, evaluation.totals)

    def _respect_nominated(self, attempt: Attempt, evaluation: Evaluation) -> None:
        """Rows must also fit the pods nominated to them that are not less important than this one."""
        for row in self._nominated_rows():
            if row >= evaluation.totals.shape[0] or evaluation.totals[row] <= BARRED:
                continue
            others = self._rivals(attempt.pod, row)
            if others and not self._fits_beside(attempt, row, others):
                evaluation.totals = evaluation.totals.copy()
                evaluation.totals[row] = BARRED

    def _rivals(self, own: PodInfo, row: Row) -> list[PodInfo]:
        """Pods nominated to the row that are not less important than this one and not placed yet."""
        if self._nominated is None:
            return []
        return [
            info
            for info in self._nominated(row)
            if info.uid != own.uid and info.priority >= own.priority and info.uid not in self.snapshot.pods
        ]

    def _fits_beside(self, attempt: Attempt, row: Row, others: list[PodInfo]) -> bool:
        with self.snapshot.trial() as trial:
            for info in others:
                trial.add(info, row)
            return self.feasible_on(attempt, row)

    def _preferred(self, attempt: Attempt, evaluation: Evaluation) -> bool:
        for judge in evaluation.kept.at("prefer"):
            for row in judge.plugin.prefer(attempt, judge.spec):
                if evaluation.totals[row] > BARRED:
                    chosen = np.full_like(evaluation.totals, BARRED)
                    chosen[row] = max(0, int(evaluation.totals[row]))
                    evaluation.totals = chosen
                    return True
        return False

    def _apply_full_scores(self, attempt: Attempt, evaluation: Evaluation) -> None:
        kept = evaluation.kept
        if not (kept.at("pre_score") or kept.at("normalized_score") or kept.at("cluster_score")):
            return
        feasible = evaluation.totals > BARRED
        if not feasible.any():
            return
        for judge in kept.at("pre_score"):
            judge.plugin.pre_score(attempt, judge.spec, feasible)
        n = feasible.shape[0]
        totals = evaluation.totals
        for judge, raw in zip(kept.at("normalized_score"), kept.raw, strict=True):
            share = judge.plugin.normalize(attempt, judge.spec, raw[:n], feasible)
            totals = totals + share * judge.weight
        for judge in kept.at("cluster_score"):
            scores = judge.plugin.score(attempt, judge.spec, self.snapshot.all_rows)
            if scores is not None:
                share = judge.plugin.normalize(attempt, judge.spec, scores, feasible)
                totals = totals + share * judge.weight
        evaluation.totals = np.where(feasible, totals, BARRED)


def defines(plugin: AnyPlugin, point: str) -> bool:
    """Whether the plugin overrides an extension point."""
    return getattr(type(plugin), point) is not getattr(Plugin, point)


def _roles(kind: type[AnyPlugin]) -> tuple[str, ...]:
    """The points that a kind of plugin defines; filters and scores by how they are asked."""
    known = _ROLES.get(kind)
    if known is not None:
        return known

    def own(point: str) -> bool:
        return getattr(kind, point) is not getattr(Plugin, point)

    per_node = kind.scope is Scope.NODE
    roles = [point for point in POINTS if own(point)]
    if own("filter"):
        roles.append("node_filter" if per_node else "cluster_filter")
    if own("score"):
        per_row = "normalized_score" if own("normalize") else "node_score"
        roles.append(per_row if per_node else "cluster_score")
    _ROLES[kind] = tuple(roles)
    return _ROLES[kind]


def _prepared(enabled: Sequence[Enabled], info: PodInfo, capacity: int) -> ClassResult:
    """Ask every plugin for its spec and sort them by what they do for this class."""
    judges: list[BoundPlugin] = []
    reasons: list[Reason] = []
    for entry in enabled:
        spec = entry.plugin.prepare(info)
        if spec is None:
            continue
        judges.append(BoundPlugin(entry.plugin, spec, entry.weight, min(len(reasons), REASON_BITS)))
        for reason in entry.plugin.reasons(spec):
            reasons.append(Reason(reason.text, reason.resolvable, reason.plugin or entry.plugin.name))
    zeros = np.zeros(capacity, dtype=np.int64)
    kept = ClassResult(judges, tuple(reasons), zeros, np.full(capacity, BARRED, dtype=np.int64), [])
    for judge in judges:
        _sort_in(kept, judge)
    kept.raw = [np.zeros(capacity, dtype=np.int64) for _ in kept.at("normalized_score")]
    return kept


def _sort_in(kept: ClassResult, judge: BoundPlugin) -> None:
    for role in _roles(type(judge.plugin)):
        if judge.weight or not role.endswith("score") or role == "pre_score":
            kept.points.setdefault(role, []).append(judge)


def _restored(kept: ClassResult, attempt: Attempt) -> dict[Row, list[Restored]]:
    merged: dict[Row, list[Restored]] = {}
    for judge in kept.at("restore"):
        for row, shares in judge.plugin.restore(attempt, judge.spec).items():
            merged.setdefault(row, []).extend(shares)
    return merged


def _judge_row(kept: ClassResult, attempt: Attempt, rows: slice) -> None:
    """Redo one row; the first filter that rejects it ends the work."""
    row = rows.start
    kept.bits[row] = 0
    kept.totals[row] = BARRED
    if not attempt.snapshot.live[row]:
        return
    for judge in kept.at("node_filter"):
        bits = judge.plugin.filter(attempt, judge.spec, rows)
        if bits is not None and bits[0]:
            kept.bits[row] = int(bits[0]) << judge.offset
            return
    total = 0
    for judge in kept.at("node_score"):
        scores = judge.plugin.score(attempt, judge.spec, rows)
        if scores is not None:
            total += int(scores[0]) * judge.weight
    for judge, raw in zip(kept.at("normalized_score"), kept.raw, strict=True):
        scores = judge.plugin.score(attempt, judge.spec, rows)
        raw[row] = 0 if scores is None else scores[0]
    kept.totals[row] = total


def _judge_rows(kept: ClassResult, attempt: Attempt, rows: Rows) -> None:
    """Redo many rows; each row's reasons are those of the first filter that rejects it."""
    live = attempt.snapshot.live[rows]
    rejected = np.zeros(live.shape[0], dtype=np.int64)
    for judge in kept.at("node_filter"):
        bits = judge.plugin.filter(attempt, judge.spec, rows)
        if bits is not None:
            rejected = np.where(rejected == 0, bits << judge.offset, rejected)
    total = np.zeros(live.shape[0], dtype=np.int64)
    feasible = live & (rejected == 0)
    if feasible.any():
        for judge in kept.at("node_score"):
            scores = judge.plugin.score(attempt, judge.spec, rows)
            if scores is not None:
                total += scores * judge.weight
        for judge, raw in zip(kept.at("normalized_score"), kept.raw, strict=True):
            scores = judge.plugin.score(attempt, judge.spec, rows)
            raw[rows] = 0 if scores is None else scores
    kept.bits[rows] = np.where(live, rejected, 0)
    kept.totals[rows] = np.where(feasible, total, BARRED)


def _named(reason: Reason, judge: BoundPlugin) -> Reason:
    return reason if reason.plugin else Reason(reason.text, reason.resolvable, judge.plugin.name)
