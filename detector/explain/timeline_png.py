"""Draws a timeline as a PNG with matplotlib, which is imported here alone and only when a picture is wanted."""

from pathlib import Path
from typing import Any

import numpy as np

from detector.explain.story import Story
from detector.explain.timeline import OTHERS, Timeline
from detector.explain.times import format_time, local_time
from detector.judging.diagnosis import Reason

_CAUSE_COLOURS = {
    "cpu:neighbour": "#c0392b",
    "cpu:kernel": "#8e44ad",
    "cpu:irq": "#d35db5",
    "cpu:own_irq": "#e8b4dc",
    "cpu:self": "#5dade2",
    "cpu:own_quota": "#f1c40f",
    "cpu:ancestor_quota": "#e67e22",
    "cpu:idle": "#bdc3c7",
    "cpu:unknown": "#7f8c8d",
    "memory:global": "#1e8449",
    "memory:compaction": "#52be80",
    "memory:self": "#82e0aa",
    "memory:own_limit": "#a9dfbf",
    "memory:ancestor_limit": "#7dcea0",
    "blockio:queue": "#1f618d",
    "blockio:device": "#2e86c1",
    "blockio:self": "#85c1e9",
    "blockio:limit": "#a9cce3",
    "net:qdisc": "#b7950b",
    "net:self": "#d4c27a",
}
_CULPRIT_COLOURS = ("#34495e", "#e59866", "#76d7c4", "#af7ac5", "#f7dc6f", "#7fb3d5")
_LONGEST_NAME = 44
_THIN_SPACE = "\u2009"
_OTHERS_COLOUR = "#d0d3d4"
_SPANS = {
    Reason.OPEN: ("#c0392b", "verdict open"),
    Reason.NOT_HELD: ("#f5b041", "above threshold, not yet held"),
    Reason.COOLING_DOWN: ("#aeb6bf", "cooling down"),
}


def draw(story: Story, drawn: Timeline, target: Path) -> None:
    """Write the picture. Raises ImportError without matplotlib, OSError where the file cannot be written."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    rules = max(len(drawn.rules), 1)
    figure, (losses, states, shares) = plt.subplots(
        3, 1, sharex=True, figsize=(11, 6.4 + 0.28 * rules), height_ratios=(4.2, 0.35 + 0.36 * rules, 2.2),
        layout="constrained",
    )  # fmt: skip
    try:
        _draw_losses(losses, story, drawn)
        _draw_states(states, drawn)
        _draw_shares(shares, drawn)
        for axes in (losses, states, shares):
            axes.axvline(drawn.at, color="black", linewidth=1.0, linestyle=(0, (1, 2)))
            axes.spines[["top", "right"]].set_visible(False)
        _label_time(shares, losses, story, drawn)
        figure.savefig(target, dpi=130, format="png")
    finally:
        plt.close(figure)


def _draw_losses(axes: Any, story: Story, drawn: Timeline) -> None:
    where = story.header.host.get("hostname", "")
    title = f"{_plain(story.victim.name)}: time lost by cause{f' on {_plain(where)}' if where else ''}"
    axes.set_title(title, loc="left", weight="bold", pad=22)
    if drawn.causes:
        colours = [_CAUSE_COLOURS.get(name, "#7f8c8d") for name in drawn.causes]
        columns = list(drawn.causes.values())
        axes.stackplot(drawn.seconds, *columns, labels=list(drawn.causes), colors=colours, step="pre", linewidth=0)
    if drawn.leading:
        axes.plot(
            drawn.seconds, drawn.threshold, color="black", linewidth=1.2, linestyle="--",
            label=f"threshold of {_plain(drawn.leading)}",
        )  # fmt: skip
        axes.step(
            drawn.seconds,
            drawn.lost,
            where="pre",
            color="black",
            linewidth=1.0,
            label=f"what {_plain(drawn.leading)} judges",
        )
    for span in drawn.rules.get(drawn.leading, ()):
        if span.reason is Reason.OPEN:
            axes.axvspan(span.start, span.end, color="#c0392b", alpha=0.08, linewidth=0)
    axes.set_ylabel("lost s/s")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    _legend(axes)


def _draw_states(axes: Any, drawn: Timeline) -> None:
    names = sorted(drawn.rules, key=lambda name: (name != drawn.leading, name))
    used = {span.reason for spans in drawn.rules.values() for span in spans}
    for row, name in enumerate(names):
        for reason, (colour, _) in _SPANS.items():
            bars = [(span.start, span.end - span.start) for span in drawn.rules[name] if span.reason is reason]
            axes.broken_barh(bars, (row - 0.38, 0.76), color=colour, linewidth=0)
    for reason, (colour, label) in _SPANS.items():
        if reason in used:
            axes.broken_barh([], (0, 0), color=colour, label=label)
    axes.set_yticks(range(len(names)), list(map(_plain, names)))
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    if names:
        _legend(axes)
    else:
        axes.text(0.5, 0.5, "no rule came above its threshold", transform=axes.transAxes, ha="center", va="center")


def _draw_shares(axes: Any, drawn: Timeline) -> None:
    axes.set_title(
        f"who held the resource, of what {_plain(drawn.leading) or 'any rule'} judges", loc="left", fontsize=10
    )
    axes.set_ylabel("share of the loss")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:.0%}")
    if not drawn.culprits:
        axes.text(0.5, 0.5, "no culprit", transform=axes.transAxes, ha="center", va="center")
        return
    colours = [
        _OTHERS_COLOUR if name == OTHERS else _CULPRIT_COLOURS[number % len(_CULPRIT_COLOURS)]
        for number, name in enumerate(drawn.culprits)
    ]
    shown = [np.where(drawn.lost > 0, column, 0.0) for column in drawn.culprits.values()]
    axes.stackplot(
        drawn.seconds, *shown, labels=list(map(_plain, drawn.culprits)), colors=colours, step="pre", linewidth=0
    )
    _legend(axes)


def _plain(name: str) -> str:
    """A name as a label: no formulas, no leading underscore (which hides labels), not too long."""
    shown = name if len(name) <= _LONGEST_NAME else f"...{name[3 - _LONGEST_NAME :]}"
    return f"{_THIN_SPACE if shown.startswith('_') else ''}{shown}".replace("$", r"\$")


def _legend(axes: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, fontsize=9, borderaxespad=0)


def _label_time(lowest: Any, highest: Any, story: Story, drawn: Timeline) -> None:
    """Wall clock below, seconds since the recording began above."""
    lowest.xaxis.set_major_formatter(
        lambda value, _position: format_time(round(story.first_ns + value * 1e9), digits=0)
    )
    day = local_time(story.at_ns)
    lowest.set_xlabel(f"{day:%Y-%m-%d}, time of day (UTC{day:%z})")
    highest.annotate(
        f"{format_time(story.at_ns)} ({drawn.at:+.1f} s)", (drawn.at, 1.01), xycoords=("data", "axes fraction"),
        ha="center", va="bottom", fontsize=9,
    )  # fmt: skip
