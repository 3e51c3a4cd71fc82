"""Picture of the figures: precision and recall of product and peers, and the time to detect of each label."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.detect.report import PRODUCT, Scored, totals

_COLOURS = ("#1b6ca8", "#c9c9c9", "#a8a8a8", "#878787")
_SHARES = (("precision", "precision"), ("recall", "recall"), ("culprit_top1", "culprit top-1"))


def draw(runs: Sequence[Scored], path: Path) -> None:
    """Write the picture; the file's suffix is its format."""
    figure = Figure(figsize=(13, 6), layout="constrained")
    shares, times = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_shares(shares, runs)
    _draw_times(times, runs)
    figure.savefig(path)


def _draw_shares(axes: Axes, runs: Sequence[Scored]) -> None:
    whole = totals(runs)
    width = 0.8 / len(whole)
    for place, (name, score) in enumerate(whole.items()):
        heights = [100 * (getattr(score, attribute) or 0.0) for attribute, _ in _SHARES]
        middles = [position + (place - (len(whole) - 1) / 2) * width for position in range(len(_SHARES))]
        bars = axes.bar(middles, heights, width, label=name, color=_COLOURS[place])
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(range(len(_SHARES)), [text for _, text in _SHARES])
    axes.set_ylabel("%")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, ncols=len(whole), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_times(axes: Axes, runs: Sequence[Scored]) -> None:
    names = list(dict.fromkeys(one.run.scenario.name for one in runs if not one.run.scenario.is_clean))[::-1]
    for one in runs:
        for outcome in one.scores[PRODUCT].outcomes:
            seconds, row = outcome.seconds_to_detect, names.index(one.run.scenario.name)
            if seconds is None:
                axes.scatter(0.0, row, marker="x", color="#b03030")
            else:
                axes.scatter(seconds, row, marker="o", color=_COLOURS[0], alpha=0.6)
    axes.axvline(2, color="#c9c9c9", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("seconds from onset to the first verdict (a cross: not detected)")
    axes.set_xlim(left=-0.2)
    axes.spines[["top", "right"]].set_visible(False)
