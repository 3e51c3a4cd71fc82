"""Rows of harm: what each victim lost to each culprit since the rows before. Pure."""

from collections.abc import Iterable

import numpy as np

from api.verdicts import CgroupRef, Verdict
from koordlet.profiles.rows import ProfileSegment

_TEXTS = (
    *("victim", "victim_workload", "victim_namespace", "resource", "cause", "rule"),
    *("culprit", "culprit_workload", "culprit_namespace", "how"),
)
_NUMBERS = ("time", "seconds", "lost_seconds")
_LEAST_SHARE = 1e-6


class HarmRows:
    """Gathers rows until `take`: one for each open verdict and culprit, and one for what no culprit explains."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._numbers: dict[str, list[float]] = {}
        self._begin()

    def _begin(self) -> None:
        self._texts = {name: [] for name in _TEXTS}
        self._numbers = {name: [] for name in _NUMBERS}

    def __len__(self) -> int:
        return len(self._texts["victim"])

    def add(self, verdicts: Iterable[Verdict], wall_seconds: float, seconds: float) -> None:
        """Add the verdicts in effect during the `seconds` before `wall_seconds`."""
        for verdict in verdicts:
            lost = verdict.lost_seconds_per_second * seconds
            left = 1.0
            for culprit in verdict.culprits:
                left -= culprit.share
                self._row(verdict, culprit.path, culprit.ref, str(culprit.how))
                self._measured(wall_seconds - seconds, seconds, lost * culprit.share)
            if left > _LEAST_SHARE:
                self._row(verdict, "", CgroupRef(), "")
                self._measured(wall_seconds - seconds, seconds, lost * left)

    def take(self) -> ProfileSegment:
        """Return the rows gathered so far and forget them."""
        floats = {name: np.array(values, "<f8").tobytes() for name, values in self._numbers.items()}
        segment = ProfileSegment(self._texts, {}, floats)
        self._begin()
        return segment

    def _row(self, verdict: Verdict, culprit: str, ref: CgroupRef, how: str) -> None:
        victim = verdict.victim_ref
        cells = (
            *(verdict.victim, victim.workload, victim.namespace, verdict.resource, verdict.cause, verdict.rule),
            *(culprit, ref.workload, ref.namespace, how),
        )
        for column, cell in zip(self._texts.values(), cells, strict=True):
            column.append(cell)

    def _measured(self, *numbers: float) -> None:
        for column, number in zip(self._numbers.values(), numbers, strict=True):
            column.append(number)
