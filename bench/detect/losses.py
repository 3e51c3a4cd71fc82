"""What services lose in clean runs, tick by tick, by the product's own measures: from the recording of the runs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.detect.kept import KeptRun
from detector.recording.files import segment_paths
from detector.recording.replay import replay

BEST_EFFORT = "be-"
"""Roles of best-effort work begin so: it yields, and what it loses by that is no service's loss."""


@dataclass(frozen=True, slots=True)
class TickLoss:
    """Loss of one service in one tick by one symptom of a rule."""

    scenario: str
    rule: str
    symptom: str
    lost: float
    """Seconds per second."""
    threshold: float


def tick_losses(runs: Sequence[KeptRun], recording: Path, report: Callable[[str], None]) -> list[TickLoss]:
    """Judge the recording again and look at the services of clean runs in each tick of theirs.

    Raises RecordingRefused where it is none, OSError where it cannot be read.
    """
    clean = [run for run in runs if run.clean]
    found: list[TickLoss] = []
    for step in replay(segment_paths(recording), report):
        seconds = step.frame.wall_ns / 1e9
        for run in clean:
            if not run.span[0] <= seconds <= run.span[1]:
                continue
            for role, path in run.paths.items():
                if role.startswith(BEST_EFFORT):
                    continue
                found += [
                    TickLoss(run.scenario, each.rule, symptom.name, symptom.lost, each.threshold)
                    for each in step.judge.diagnose(path)
                    for symptom in each.symptoms
                    if symptom.lost is not None and np.isfinite(each.threshold)
                ]
    return found


def as_table(losses: Sequence[TickLoss]) -> str:
    """A row for each symptom of a rule by which a service lost anything, with the scenario of the greatest loss."""
    by_symptom: dict[tuple[str, str], list[TickLoss]] = defaultdict(list)
    for each in losses:
        by_symptom[each.rule, each.symptom].append(each)
    lines = [
        "| loss | worst scenario | 95th percentile there | greatest | threshold |",
        "|---|---|---|---|---|",
    ]
    for (rule, symptom), ticks in sorted(by_symptom.items()):
        worst = max(ticks, key=lambda each: each.lost)
        there = [each.lost for each in ticks if each.scenario == worst.scenario]
        if worst.lost <= 0:
            continue
        name = f"`{rule}`" if symptom.replace("_", "-") == rule else f"`{rule}`: {symptom}"
        figures = f"{np.percentile(there, 95):.3f} | {worst.lost:.3f} | {worst.threshold:.3g}"
        lines.append(f"| {name} | `{worst.scenario}` | {figures} |")
    return "\n".join(lines)
