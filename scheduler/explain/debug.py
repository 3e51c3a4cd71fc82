"""Debug output of a running scheduler: score and filter tables, and the switches for them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.kube.times import duration_seconds
from scheduler.cycle import BARRED, Cycle, Evaluation
from scheduler.explain.diagnosis import by_node, sentence
from scheduler.framework import Attempt

log = logging.getLogger("scheduler.explain.debug")


@dataclass(slots=True)
class DebugFlags:
    """Switched at run time by PUT /debug/flags/<key>."""

    score_rows: int = 0
    """Nodes in the score table of each attempt; 0 is off (`s`)."""
    filters: bool = False
    """Log a table of every node's reasons for each pod that finds no node (`f`)."""
    diagnosis: bool = False
    """Log the sentence for each pod that finds no node (`d`)."""
    scheduling_timeout_seconds: float = 30.0
    """Time that an attempt may take before it is logged and counted; 0 is off (`t`, a duration such as 30s)."""

    def set(self, key: str, value: str) -> None:
        """Set one switch from its text. Raises KeyError for an unknown key, ValueError for a bad value."""
        if key == "s":
            self.score_rows = int(value)
        elif key == "f":
            self.filters = _truth(value)
        elif key in ("d", "db"):
            self.diagnosis = _truth(value)
        elif key == "t":
            self.scheduling_timeout_seconds = _seconds(value)
        elif key == "v":
            logging.getLogger("scheduler").setLevel(logging.DEBUG if int(value) >= 4 else logging.INFO)
        else:
            raise KeyError(key)

    def show(self, cycle: Cycle, attempt: Attempt, evaluation: Evaluation) -> None:
        """Log what the switches ask for."""
        if not (self.score_rows or self.filters or self.diagnosis):
            return
        if self.score_rows > 0 and (evaluation.totals > BARRED).any():
            log.info("scores\n%s", score_table(cycle, attempt, evaluation, self.score_rows))
        if (evaluation.totals > BARRED).any():
            return
        if self.filters:
            log.info("filters\n%s", filter_table(cycle, attempt, evaluation))
        if self.diagnosis:
            log.info("%s: %s", attempt.pod.key, sentence(evaluation.failure, cycle.snapshot))


def score_table(cycle: Cycle, attempt: Attempt, evaluation: Evaluation, limit: int) -> str:
    """Markdown: the best `limit` nodes by total, and each plugin's weighted score."""
    order = np.argsort(-evaluation.totals, kind="stable")
    rows = order[evaluation.totals[order] > BARRED][:limit]
    scores = cycle.scores_by_plugin(attempt, rows)
    scores = dict(sorted(scores.items()))
    header = ["#", "Pod", "Node", "Score", *scores]
    lines = [
        [
            str(place),
            attempt.pod.key,
            cycle.snapshot.names[row],
            str(int(evaluation.totals[row])),
            *(str(int(column[place])) for column in scores.values()),
        ]
        for place, row in enumerate(rows)
    ]
    return markdown(header, lines, numbers_from=3)


def filter_table(cycle: Cycle, attempt: Attempt, evaluation: Evaluation) -> str:
    """Markdown: every node that rejects the pod, by which plugin and why."""
    lines = [
        [attempt.pod.key, item.node, reason.plugin, reason.text]
        for item in by_node(evaluation.failure, cycle.snapshot)
        for reason in item.reasons
    ]
    return markdown(["Pod", "Node", "Plugin", "Reason"], lines)


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]], numbers_from: int | None = None) -> str:
    """A Markdown table; columns from `numbers_from` on are aligned to the right."""
    texts = len(header) if numbers_from is None else numbers_from
    rule = "|" + "".join(" --- |" if column < texts else " ---:|" for column in range(len(header)))
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (header, *lines)]
    return "\n".join((rows[0], rule, *rows[1:]))


def _seconds(value: str) -> float:
    seconds = duration_seconds(value.strip())
    if seconds is None or seconds < 0:
        raise ValueError(f"no duration such as 30s: {value!r}")
    return seconds


def _truth(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("1", "t", "true"):
        return True
    if lowered in ("0", "f", "false"):
        return False
    raise ValueError(f"neither true nor false: {value!r}")
