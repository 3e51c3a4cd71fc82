"""Updates of verdicts: the lines to report in a tick, on opening and on change."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID
from api.verdicts import Verdict
from detector.arrays import Flags, Ids, Rows
from detector.judging.rule_state import RuleState
from detector.judging.sensing import RuleTick
from detector.judging.verdict_rows import severity_ranks, verdicts_of
from detector.rules import Rule
from detector.symptom import Symptom

GROWTH_RATIO, DECLINE_RATIO = 1.5, 0.5
"""A line is reported when the smoothed loss grows or shrinks by these factors, or severity, cause or culprit change."""
CULPRIT_CHANGE_RATIO = 1.5
"""A culprit replaces the reported one when its part is so many times that one's."""
MIN_CULPRIT_NS = 3 * 10**9
"""A reported culprit stays for at least this time."""
CULPRIT_RETRY_NS = 5 * 10**9
"""A verdict without culprits looks for some again after this time, then each time after twice as long."""
MAX_RETRIES_PER_TICK = 32
"""Cgroups of a rule that look for culprits again in one tick, those first that did so longest ago; the others
follow."""


class UpdateFilter:
    """Comparison of open verdicts' last lines with their present state; shares both with the engine."""

    def __init__(
        self,
        rules: Sequence[Rule],
        symptoms: Mapping[str, Symptom],
        memory: RuleState,
        persisting: dict[tuple[int, int], Verdict],
    ) -> None:
        self._rules, self._symptoms, self._memory, self._open = rules, symptoms, memory, persisting
        self._names = tuple(symptoms)

    def by_symptom(self, tick: RuleTick, place: int, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """The rows of a rule by the symptom that costs them most."""
        worst = tick.worst[place, rows]
        for number in np.unique(worst).tolist():
            yield self._names[number], rows[worst == number]

    def updates(self, tick: RuleTick, place: int, opening: Flags, persisting: Flags) -> Iterator[Verdict]:
        """Verdicts of one rule: of rows where it opens, and of those where it is open and has changed."""
        for name, rows in self.by_symptom(tick, place, np.flatnonzero(opening | persisting)):
            ranks, changed = self._severities(tick, place, name, rows, opening[rows])
            first, other = self._culprits(tick, place, name, rows)
            pick = np.flatnonzero(changed | other)
            if len(pick):
                yield from self._verdicts(
                    tick, place, name, rows[pick], ranks[pick], first[pick], changed=changed[pick]
                )

    def _severities(
        self, tick: RuleTick, place: int, name: str, rows: Rows, fresh: Flags
    ) -> tuple[NDArray[np.int8], Flags]:
        """Severity of each row's loss, and whether that, the loss or its cause differs from the last line."""
        memory = self._memory
        lost, limits = tick.signals[name].lost[rows], tick.limits[place, rows]
        smoothed = np.where(fresh, lost, (memory.smoothed[place, rows] + lost) / 2)
        memory.smoothed[place, rows] = smoothed
        reported = memory.reported_severity[place, rows]
        ranks = np.where(fresh, severity_ranks(lost / limits), severity_ranks(smoothed / limits, reported))
        growth = smoothed / np.maximum(memory.reported_lost[place, rows], 1e-9)
        changed = fresh | (ranks != reported) | (growth >= GROWTH_RATIO) | (growth <= DECLINE_RATIO)
        return ranks, changed | (memory.reported_symptom[place, rows] != self._names.index(name))

    def _culprits(self, tick: RuleTick, place: int, name: str, rows: Rows) -> tuple[Ids, Flags]:
        """First culprit by a blame table, and where it differs from that of the last line."""
        memory, ids = self._memory, tick.view.ids[rows]
        reported = memory.reported_culprit[place, rows]
        age_ns = tick.now_ns - memory.reported_ns[place, rows]
        source = self._symptoms[name].blame
        blame = tick.view.blame(source.table) if source.table else None
        if blame is None:
            correlates = bool(source.suspects or source.explained or source.published)
            unchanged_ns = memory.reported_ns[place, rows] - memory.opened_ns[place, rows]
            ready = np.flatnonzero(
                (reported == 0) & (age_ns >= np.maximum(unchanged_ns, CULPRIT_RETRY_NS)) & correlates
            )
            due = np.zeros(len(rows), dtype=np.bool_)
            due[ready[np.argsort(ids[ready])[:MAX_RETRIES_PER_TICK]]] = True
            if source.used:
                due |= self._other_users(tick, place, name, rows, age_ns >= MIN_CULPRIT_NS)
            return reported, due
        first, amounts = blame.biggest(ids)
        outgrown = amounts >= CULPRIT_CHANGE_RATIO * blame.against(ids, reported)
        return first, np.asarray((first != reported) & outgrown & (age_ns >= MIN_CULPRIT_NS))

    def _other_users(self, tick: RuleTick, place: int, name: str, rows: Rows, old_enough: Flags) -> Flags:
        """Where another one now uses most of an ancestor's limit than the last line names first."""
        found = np.zeros(len(rows), dtype=np.bool_)
        ids = tick.view.ids[rows].tolist()
        told = {
            number: self._open[place, ids[number]]
            for number in np.flatnonzero(old_enough).tolist()
            if (place, ids[number]) in self._open
        }
        looked_ns = self._memory.looked_ns[place]
        numbers = sorted(told, key=lambda number: (looked_ns[rows[number]], ids[number]))[:MAX_RETRIES_PER_TICK]
        looked_ns[rows[numbers]] = tick.now_ns
        for number, blamed in zip(numbers, tick.attributor.of(name, rows[numbers]), strict=True):
            shares = {culprit.path: culprit.share for culprit in blamed.culprits}
            before = told[number].culprits[0].path if told[number].culprits else ""
            first = blamed.culprits[0].path if blamed.culprits else before
            found[number] = first != before and shares[first] >= CULPRIT_CHANGE_RATIO * shares.get(before, 0.0)
        return found

    def _verdicts(
        self, tick: RuleTick, place: int, name: str, rows: Rows, ranks: NDArray[np.int8], first: Ids, *, changed: Flags
    ) -> Iterator[Verdict]:
        """Verdicts of the rows; one that has not `changed` is reported only where culprits were found."""
        memory, symptom, rule = self._memory, self._symptoms[name], self._rules[place]
        ids = tick.view.ids[rows].tolist()
        before = [self._open.get((place, one)) for one in ids]
        lost = memory.smoothed[place, rows].tolist()
        verdicts = verdicts_of(tick, rule, (name, symptom), rows, lost, ranks.tolist(), before)
        named = np.array([bool(verdict.culprits) for verdict in verdicts], dtype=np.bool_)
        by_table = bool(symptom.blame.table) and tick.view.blame(symptom.blame.table) is not None
        memory.reported_ns[place, rows] = tick.now_ns
        memory.reported_culprit[place, rows] = first if by_table else np.where(named, np.uint64(OTHER_ID), np.uint64(0))
        kept = changed | named
        reported = rows[kept]
        memory.reported_lost[place, reported] = memory.smoothed[place, reported]
        memory.reported_severity[place, reported] = ranks[kept]
        memory.reported_symptom[place, reported] = self._names.index(name)
        for one, verdict, is_kept in zip(ids, verdicts, kept.tolist(), strict=True):
            if is_kept:
                self._open[place, one] = verdict
                yield verdict
