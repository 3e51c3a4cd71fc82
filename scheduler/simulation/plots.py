"""Runs as pictures. matplotlib is imported when a picture is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scheduler.simulation.day import DayCurve
from scheduler.simulation.drive import Curve
from scheduler.simulation.report import by_policy


def saturation_plot(curves: Sequence[Curve], path: Path) -> None:
    """Allocated and fragmented GPUs over arrivals, one thin line per seed; the suffix of `path` is the format."""
    figure, (left, right) = _axes(2)
    for number, (name, runs) in enumerate(by_policy(curves).items()):
        for position, run in enumerate(runs):
            arrived = [100 * point.arrived for point in run.points]
            style = {"color": f"C{number}", "linewidth": 0.9, "label": name if position == 0 else None}
            left.plot(arrived, [100 * point.allocated for point in run.points], **style)
            right.plot(arrived, [100 * point.fragmented for point in run.points], **style)
    left.plot([0, 100], [0, 100], color="grey", linewidth=0.6, linestyle=":")
    for axis, title in ((left, "GPUs allocated"), (right, "GPUs fragmented")):
        axis.set(xlabel="arrived, % of GPU capacity", ylabel="% of GPU capacity", title=title)
        axis.legend()
    _save(figure, path)


def day_plot(curves: Sequence[DayCurve], path: Path) -> None:
    """Spread of node load and predicted loss over the hours, mean over seeds."""
    figure, (left, right) = _axes(2)
    for name, runs in by_policy(curves).items():
        left.plot(runs[0].hours, np.mean([run.spread for run in runs], axis=0), label=name, linewidth=1.0)
        right.plot(runs[0].hours, np.mean([run.lost for run in runs], axis=0), label=name, linewidth=1.0)
    left.set(xlabel="hours", ylabel="share of node capacity", title="p95 - p50 of node load")
    right.set(xlabel="hours", ylabel="lost seconds per second", title="predicted loss")
    left.legend()
    right.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """Without the date, so that the same runs make the same file."""
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _axes(count: int) -> tuple[Any, Any]:
    """A figure that needs no display, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "koord"
    figure = Figure(figsize=(6.4 * count, 4.2), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, axes
