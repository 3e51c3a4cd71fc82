"""Verdicts in bulk: of one rule and one symptom, for all cgroups that report in a tick."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from api.verdict_text import KERNEL_THREADS
from api.verdicts import KERNEL, NO_REF, Culprit, Severity, Verdict, VerdictState
from detector.arrays import Floats, Rows
from detector.attribution import Attribution
from detector.judging.sensing import RuleTick
from detector.rules import Rule
from detector.symptom import Symptom
from detector.view import View, ref_of

SEVERITIES = (Severity.LOW, Severity.MEDIUM, Severity.HIGH)
_MEDIUM, _HIGH = 3.0, 8.0
"""Times the threshold from which a loss is of medium and of high severity."""
_RELIEF = 0.75
"""A reported severity stays until the loss is below this part of its lower bound."""


def severity_ranks(times: Floats, reported: NDArray[np.int8] | None = None) -> NDArray[np.int8]:
    """Place in SEVERITIES of losses given in thresholds; `reported` are those of the last lines."""
    ranks = np.searchsorted([_MEDIUM, _HIGH], times, "right")
    if reported is not None:
        relieved = np.searchsorted([_MEDIUM * _RELIEF, _HIGH * _RELIEF], times, "right")
        ranks = np.clip(reported, ranks, relieved)
    return ranks.astype(np.int8)


def verdicts_of(
    tick: RuleTick,
    rule: Rule,
    symptom: tuple[str, Symptom],
    rows: Rows,
    lost: Sequence[float],
    ranks: Sequence[int],
    before: Sequence[Verdict | None],
) -> list[Verdict]:
    """A verdict on each row's loss, of a severity; it opens where none was open `before`."""
    name, kind = symptom
    time = tick.view.window.last.wall_ns / 1e9
    blamed = tick.attributor.of(name, rows)
    evidence = evidence_of(tick, rule, name, kind, rows)
    return [
        Verdict(
            time=time,
            state=VerdictState.OPEN if earlier is None else VerdictState.UPDATE,
            victim=tick.view.cgroups[row].path,
            resource=kind.resource,
            cause=kind.cause,
            lost_seconds_per_second=amount,
            severity=SEVERITIES[rank],
            culprits=tuple(_referred(culprit, tick.view) for culprit in blame.culprits),
            confidence=blame.confidence,
            evidence={**shown, **_more_evidence(blame, tick.view)},
            rule=rule.name,
            since=time if earlier is None else earlier.since,
            victim_ref=ref_of(tick.view.cgroups[row]),
        )
        for row, amount, rank, earlier, blame, shown in zip(
            rows.tolist(), lost, ranks, before, blamed, evidence, strict=True
        )
    ]


def _more_evidence(blame: Attribution, view: View) -> dict[str, float]:
    """What other symptoms explain; and where the kernel is a culprit that was seen, what its threads did meanwhile."""
    more = {f"explained_by.{other}": part for other, part in blame.explained.items()}
    if any(culprit.path == KERNEL for culprit in blame.culprits):
        more |= {f"{KERNEL_THREADS}{work}": cpus for work, cpus in view.kernel_work.items() if cpus > 0}
    return more


def _referred(culprit: Culprit, view: View) -> Culprit:
    ref = view.ref(culprit.path)
    return culprit if ref is NO_REF else Culprit(culprit.path, culprit.share, culprit.how, ref)


def evidence_of(tick: RuleTick, rule: Rule, name: str, symptom: Symptom, rows: Rows) -> list[dict[str, float]]:
    """Evidence of the rows' verdicts: the losses of all symptoms of the rule, and the symptom's own numbers."""
    shown: dict[str, Floats] = {
        f"{each}.lost": tick.signals[each].lost for each in rule.symptoms if each in tick.signals
    }
    shown |= {column: tick.view.rate(column) for column in symptom.columns if tick.view.has(column)}
    shown |= dict(tick.signals[name].evidence)
    return _rows_of(shown, rows)


def _rows_of(columns: Mapping[str, Floats], rows: Rows) -> list[dict[str, float]]:
    """Each row as a mapping, without what is not measured."""
    names = list(columns)
    matrix = np.stack([columns[name][rows] for name in names], axis=1)
    values = matrix.tolist()
    if np.isfinite(matrix).all():
        return [dict(zip(names, row, strict=True)) for row in values]
    known = np.isfinite(matrix).tolist()
    return [
        {name: value for name, value, there in zip(names, row, keep, strict=True) if there}
        for row, keep in zip(values, known, strict=True)
    ]
