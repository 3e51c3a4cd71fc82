"""The scheduling cycle: filter and score all rows for one pod, to a row or to the reasons against every row.

Cost of an attempt: `ClassResult` holds a class's combined filter bits and score totals for all rows; an attempt
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
from scheduler.explain.diagnosis import decode
from scheduler.framework import Attempt, Bits, Failure, Plugin, Reason, Restored, Scope, Scores
from scheduler.profile import Enabled, Profiles

AnyPlugin: TypeAlias = Plugin[Any]

BARRED = -1
"""Total of a row that cannot take the pod."""

NO_ROWS: NDArray[np.intp] = np.zeros(0, dtype=np.intp)

NO_BITS: Bits = np.zeros(1, dtype=np.int64)

REASON_BITS = 62
"""Distinct reasons of a class; further ones share the last bit."""

POINTS = (
    "pre_filter",
    "restore",
    "avoid",
    "prefer",
    "pre_score",
    "post_filter",
    "reserve",
    "unreserve",
    "permit",
    "settle",
    "pre_bind",
    "bind",
    "post_bind",
)
"""Extension points of an attempt that only their definers are called for."""

ROLE_POINTS = {
    "node_filter": "filter",
    "cluster_filter": "filter",
    "avoid": "filter",
    "node_score": "score",
    "normalized_score": "score",
    "cluster_score": "score",
}
"""Extension points that roles are left out with, where they are not named as theirs."""

MAX_CLASS_RESULTS = 256
"""Classes with cached results; each costs 24 bytes per node and normalised score."""


@dataclass(slots=True, eq=False)
class PreparedPlugin:
    """A plugin with the spec of one class; `offset` is the place of its reasons among the class's."""

    plugin: AnyPlugin
    spec: Any
    weight: int = 1
    offset: int = 0
    without: frozenset[str] = frozenset()
    """Points that the profile leaves out of the plugin."""


@dataclass(slots=True, eq=False)
class ClassResult:
    """Filter and score results of one class of pods, row by row."""

    plugins: list[PreparedPlugin]
    """Every plugin that prepared a spec for the class, in rank order."""
    reasons: tuple[Reason, ...]
    bits: Bits
    totals: Scores
    """Weighted sum of node-scope scores, BARRED where a node-scope filter rejects or no node is."""
    raw: list[Scores]
    """Per plugin of `normalized_score`, its scores before normalisation."""
    avoided: Bits | None = None
    """Reasons for which feasible rows are a last resort; None while there has been no such row."""
    generation: int = -1
    points: dict[str, list[PreparedPlugin]] = field(default_factory=dict)
    """Plugins by extension point; filters and scores under the names in `_roles`."""

    def at(self, point: str) -> list[PreparedPlugin]:
        """Return the plugins of a point, in rank order."""
        return self.points.get(point, _NO_PLUGINS)

    def despite(self, row: Row) -> tuple[Reason, ...]:
        """Return the reasons for which a row was a last resort."""
        return () if self.avoided is None else decode(int(self.avoided[row]), self.reasons)


_NO_PLUGINS: list[PreparedPlugin] = []
_ROLES: dict[type[AnyPlugin], tuple[str, ...]] = {}


@dataclass(slots=True, eq=False)
class Evaluation:
    """Filter bits and score totals of all rows for one attempt."""

    class_result: ClassResult
    totals: Scores
    """int64[rows_used]; BARRED where the pod cannot go."""
    bits: Bits
    reason: Reason | None = None

    @property
    def failure(self) -> Failure:
        """The reasons, for when no row is feasible."""
        return Failure(self.class_result.reasons, self.bits, self.reason)


class Cycle:
    """The filter and score half of an attempt. `nominated(row)` gives the pods that wait for room on a row."""

    def __init__(
        self,
        snapshot: Snapshot,
        profiles: Profiles,
        *,
        nominated: Callable[[Row], Iterable[PodInfo]] | None = None,
        nominated_rows: Callable[[], Iterable[Row]] = tuple,
        seed: int = 0,
    ) -> None:
        self.snapshot = snapshot
        self._profiles = profiles
        self._nominated = nominated
        self._nominated_rows = nominated_rows
        self._random = random.Random(seed)
        self._class_results: OrderedDict[PodClass, ClassResult] = OrderedDict()

    def invalidate(self) -> None:
        """Forget every spec and result."""
        self._class_results.clear()

    def forget(self, classes: Iterable[PodClass]) -> None:
        """Forget specs and results of some classes."""
        for cls in classes:
            self._class_results.pop(cls, None)

    def attempt(self, info: PodInfo, now: float) -> Attempt:
        """Start an attempt."""
        return Attempt(info, self.snapshot, now)

    def evaluate(
        self,
        attempt: Attempt,
        *,
        prefer: bool = True,
        excluded: NDArray[np.intp] = NO_ROWS,
        last_resort: bool = True,
    ) -> Evaluation:
        """Filter and score all rows for the pod; `excluded` rows are barred before the others are scored.

        Rows that plugins avoid pass when no other does, unless there is to be no `last_resort`. While a filter has yet
        to look at some row, another may.
        """
        class_result = self.class_result(attempt.pod)
        n = self.snapshot.rows_used
        for prepared in class_result.at("pre_filter"):
            reason = prepared.plugin.pre_filter(attempt, prepared.spec)
            if reason is not None:
                barred = np.full(n, BARRED, dtype=np.int64)
                return Evaluation(class_result, barred, np.zeros(n, dtype=np.int64), _attributed(reason, prepared))
        if class_result.at("restore"):
            attempt.restored = _restored(class_result, attempt)
        self._refresh(class_result, attempt)
        avoided = _avoided_rows(class_result, n)
        evaluation = self._feasible(attempt, class_result, excluded, avoided)
        searched = not attempt.unfinished and not (evaluation.totals > BARRED).any()
        if avoided.size and last_resort and searched:
            attempt.last_resort = True
            evaluation = self._feasible(attempt, class_result, excluded)
        if prefer and class_result.at("prefer") and self._preferred(attempt, evaluation):
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
        """Return whether every filter passes the row of the snapshot as it is now, with the pods nominated to it."""
        if not self.feasible_on(attempt, row):
            return False
        others = self._nominated_rivals(attempt.pod, row)
        return not others or self._fits_beside(attempt, row, others)

    def feasible_on(self, attempt: Attempt, row: Row) -> bool:
        """Return whether every filter passes the row of the snapshot as it is now."""
        rows = slice(row, row + 1)
        class_result = self.class_result(attempt.pod)
        for prepared in class_result.at("node_filter") + class_result.at("cluster_filter"):
            bits = prepared.plugin.filter(attempt, prepared.spec, rows)
            if bits is not None and bits[0]:
                return False
        return bool(self.snapshot.live[row])

    def avoided(self, attempt: Attempt, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which of the rows are a last resort, whatever the filters say of them."""
        found: NDArray[np.bool_] = _avoided_bits(self.class_result(attempt.pod), attempt, rows) != 0
        return found

    def scores_by_plugin(self, attempt: Attempt, rows: NDArray[np.intp]) -> dict[str, Scores]:
        """Weighted score of each plugin on the rows, for the score table."""
        class_result = self.class_result(attempt.pod)
        n = self.snapshot.rows_used
        feasible = class_result.totals[:n] > BARRED
        table: dict[str, Scores] = {}
        for prepared in (
            class_result.at("node_score") + class_result.at("normalized_score") + class_result.at("cluster_score")
        ):
            scores = prepared.plugin.score(attempt, prepared.spec, slice(0, n))
            if scores is None and prepared.plugin.scope is Scope.NODE:
                scores = np.zeros(n, dtype=np.int64)
            if scores is not None:
                scores = prepared.plugin.normalize(attempt, prepared.spec, scores, feasible)
                table[prepared.plugin.name] = scores[rows] * prepared.weight
        return table

    # Internals

    def class_result(self, info: PodInfo) -> ClassResult:
        """Return the results of the pod's class, prepared at its first pod."""
        class_result = self._class_results.get(info.cls)
        capacity = self.snapshot.capacity
        if class_result is None or class_result.bits.shape[0] != capacity:
            self.snapshot.vector(info)
            class_result = self._class_results[info.cls] = _prepare_class(
                self._profiles.of(info.scheduler_name), info, capacity
            )
            if len(self._class_results) > MAX_CLASS_RESULTS:
                self._class_results.popitem(last=False)
        self._class_results.move_to_end(info.cls)
        return class_result

    def _refresh(self, class_result: ClassResult, attempt: Attempt) -> None:
        snapshot = self.snapshot
        rows: Rows | None = (
            snapshot.all_rows if class_result.generation < 0 else snapshot.changed_since(class_result.generation)
        )
        class_result.generation = snapshot.generation
        if rows is None:
            return
        if isinstance(rows, slice) and rows.stop - rows.start == 1:
            _evaluate_row(class_result, attempt, rows)
        else:
            _evaluate_rows(class_result, attempt, rows)

    def _feasible(
        self,
        attempt: Attempt,
        class_result: ClassResult,
        excluded: NDArray[np.intp],
        avoided: NDArray[np.intp] = NO_ROWS,
    ) -> Evaluation:
        """The rows that every filter passes, but for those excluded and those avoided."""
        n = self.snapshot.rows_used
        evaluation = Evaluation(class_result, class_result.totals[:n], class_result.bits[:n])
        if avoided.size and class_result.avoided is not None:
            evaluation.totals, evaluation.bits = evaluation.totals.copy(), evaluation.bits.copy()
            evaluation.totals[avoided] = BARRED
            evaluation.bits[avoided] = class_result.avoided[avoided]
        if excluded.size:
            evaluation.totals = evaluation.totals.copy()
            evaluation.totals[excluded] = BARRED
        self._apply_cluster_filters(attempt, evaluation)
        self._respect_nominated(attempt, evaluation)
        return evaluation

    def _apply_cluster_filters(self, attempt: Attempt, evaluation: Evaluation) -> None:
        rows = self.snapshot.all_rows
        for prepared in evaluation.class_result.at("cluster_filter"):
            attempt.possible = evaluation.totals > BARRED
            bits = prepared.plugin.filter(attempt, prepared.spec, rows)
            attempt.possible = None
            if bits is None:
                continue
            barred = bits != 0
            evaluation.bits = np.where(evaluation.bits == 0, bits << prepared.offset, evaluation.bits)
            evaluation.totals = np.where(barred, BARRED, evaluation.totals)

    def _respect_nominated(self, attempt: Attempt, evaluation: Evaluation) -> None:
        """Rows must also fit the pods nominated to them that are not less important than this one."""
        for row in self._nominated_rows():
            if row >= evaluation.totals.shape[0] or evaluation.totals[row] <= BARRED:
                continue
            others = self._nominated_rivals(attempt.pod, row)
            if others and not self._fits_beside(attempt, row, others):
                evaluation.totals = evaluation.totals.copy()
                evaluation.totals[row] = BARRED

    def _nominated_rivals(self, own: PodInfo, row: Row) -> list[PodInfo]:
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
        for prepared in evaluation.class_result.at("prefer"):
            for row in prepared.plugin.prefer(attempt, prepared.spec):
                if evaluation.totals[row] > BARRED:
                    chosen = np.full_like(evaluation.totals, BARRED)
                    chosen[row] = max(0, int(evaluation.totals[row]))
                    evaluation.totals = chosen
                    return True
        return False

    def _apply_full_scores(self, attempt: Attempt, evaluation: Evaluation) -> None:
        class_result = evaluation.class_result
        if not (
            class_result.at("pre_score") or class_result.at("normalized_score") or class_result.at("cluster_score")
        ):
            return
        feasible = evaluation.totals > BARRED
        if not feasible.any():
            return
        for prepared in class_result.at("pre_score"):
            prepared.plugin.pre_score(attempt, prepared.spec, feasible)
        n = feasible.shape[0]
        totals = evaluation.totals
        for prepared, raw in zip(class_result.at("normalized_score"), class_result.raw, strict=True):
            share = prepared.plugin.normalize(attempt, prepared.spec, raw[:n], feasible)
            totals = totals + share * prepared.weight
        for prepared in class_result.at("cluster_score"):
            scores = prepared.plugin.score(attempt, prepared.spec, self.snapshot.all_rows)
            if scores is not None:
                share = prepared.plugin.normalize(attempt, prepared.spec, scores, feasible)
                totals = totals + share * prepared.weight
        evaluation.totals = np.where(feasible, totals, BARRED)


def defines(plugin: AnyPlugin, point: str) -> bool:
    """Return whether the plugin overrides an extension point."""
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


def _prepare_class(enabled: Sequence[Enabled], info: PodInfo, capacity: int) -> ClassResult:
    """Ask every plugin for its spec and sort them by what they do for this class."""
    plugins: list[PreparedPlugin] = []
    reasons: list[Reason] = []
    for entry in enabled:
        spec = entry.plugin.prepare(info)
        if spec is None:
            continue
        plugins.append(PreparedPlugin(entry.plugin, spec, entry.weight, min(len(reasons), REASON_BITS), entry.without))
        for reason in entry.plugin.reasons(spec):
            reasons.append(Reason(reason.text, reason.resolvable, reason.plugin or entry.plugin.name))
    zeros = np.zeros(capacity, dtype=np.int64)
    class_result = ClassResult(plugins, tuple(reasons), zeros, np.full(capacity, BARRED, dtype=np.int64), [])
    for prepared in plugins:
        _add_by_role(class_result, prepared)
    class_result.raw = [np.zeros(capacity, dtype=np.int64) for _ in class_result.at("normalized_score")]
    return class_result


def _add_by_role(class_result: ClassResult, prepared: PreparedPlugin) -> None:
    for role in _roles(type(prepared.plugin)):
        point = ROLE_POINTS.get(role, role)
        if point not in prepared.without and (prepared.weight or point != "score"):
            class_result.points.setdefault(role, []).append(prepared)


def _restored(class_result: ClassResult, attempt: Attempt) -> dict[Row, list[Restored]]:
    merged: dict[Row, list[Restored]] = {}
    for prepared in class_result.at("restore"):
        for row, shares in prepared.plugin.restore(attempt, prepared.spec).items():
            merged.setdefault(row, []).extend(shares)
    return merged


def _evaluate_row(class_result: ClassResult, attempt: Attempt, rows: slice) -> None:
    """Redo one row; the first filter that rejects it ends the work."""
    row = rows.start
    class_result.bits[row] = 0
    class_result.totals[row] = BARRED
    _note_avoided(class_result, rows, NO_BITS)
    if not attempt.snapshot.live[row]:
        return
    for prepared in class_result.at("node_filter"):
        bits = prepared.plugin.filter(attempt, prepared.spec, rows)
        if bits is not None and bits[0]:
            class_result.bits[row] = int(bits[0]) << prepared.offset
            return
    if class_result.at("avoid"):
        _note_avoided(class_result, rows, _avoided_bits(class_result, attempt, rows))
    total = 0
    for prepared in class_result.at("node_score"):
        scores = prepared.plugin.score(attempt, prepared.spec, rows)
        if scores is not None:
            total += int(scores[0]) * prepared.weight
    for prepared, raw in zip(class_result.at("normalized_score"), class_result.raw, strict=True):
        scores = prepared.plugin.score(attempt, prepared.spec, rows)
        raw[row] = 0 if scores is None else scores[0]
    class_result.totals[row] = total


def _evaluate_rows(class_result: ClassResult, attempt: Attempt, rows: Rows) -> None:
    """Redo many rows; each row's reasons are those of the first filter that rejects it."""
    live = attempt.snapshot.live[rows]
    rejected = np.zeros(live.shape[0], dtype=np.int64)
    for prepared in class_result.at("node_filter"):
        bits = prepared.plugin.filter(attempt, prepared.spec, rows)
        if bits is not None:
            rejected = np.where(rejected == 0, bits << prepared.offset, rejected)
    total = np.zeros(live.shape[0], dtype=np.int64)
    feasible = live & (rejected == 0)
    if feasible.any():
        for prepared in class_result.at("node_score"):
            scores = prepared.plugin.score(attempt, prepared.spec, rows)
            if scores is not None:
                total += scores * prepared.weight
        for prepared, raw in zip(class_result.at("normalized_score"), class_result.raw, strict=True):
            scores = prepared.plugin.score(attempt, prepared.spec, rows)
            raw[rows] = 0 if scores is None else scores
    if class_result.at("avoid"):
        _note_avoided(class_result, rows, np.where(feasible, _avoided_bits(class_result, attempt, rows), 0))
    class_result.bits[rows] = np.where(live, rejected, 0)
    class_result.totals[rows] = np.where(feasible, total, BARRED)


def _avoided_bits(class_result: ClassResult, attempt: Attempt, rows: Rows) -> Bits:
    """Reasons of all plugins for which rows are a last resort, int64[rows]."""
    found = np.zeros(attempt.snapshot.live[rows].shape[0], dtype=np.int64)
    for prepared in class_result.at("avoid"):
        bits = prepared.plugin.avoid(attempt, prepared.spec, rows)
        if bits is not None:
            found |= bits << prepared.offset
    return found


def _note_avoided(class_result: ClassResult, rows: Rows, bits: Bits) -> None:
    """Keep the reasons; most classes never have any, and no column then."""
    if class_result.avoided is None and not bits.any():
        return
    if class_result.avoided is None:
        class_result.avoided = np.zeros_like(class_result.bits)
    class_result.avoided[rows] = bits


def _avoided_rows(class_result: ClassResult, rows_used: int) -> NDArray[np.intp]:
    """Rows that are a last resort, among those that the filters of node scope pass."""
    if class_result.avoided is None:
        return NO_ROWS
    return np.flatnonzero(class_result.avoided[:rows_used])


def _attributed(reason: Reason, prepared: PreparedPlugin) -> Reason:
    return reason if reason.plugin else Reason(reason.text, reason.resolvable, prepared.plugin.name)
