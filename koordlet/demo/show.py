"""Output of the demo: the live view, the closing table and the picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from koordlet.demo.measure import DemoPhase, DemoRow, Floats, compare, rolling_p99

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {"alone": "green", "unprotected": "red", "protected": "cyan"}


def milliseconds(seconds: float) -> str:
    """Return a latency to show; one of a request that was never answered is named so."""
    if np.isnan(seconds):
        return "-"
    if np.isinf(seconds):
        return "lost"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def percent(ratio: float) -> str:
    """Return a percentage to show."""
    return "-" if np.isnan(ratio) else f"{ratio:.0%}"


def table(phases: Sequence[DemoPhase], *, title: str = "") -> Table:
    """Return the table of what each phase cost the service and the best-effort work; it fits into 80 columns."""
    drawn = Table(title=title, title_justify="left", expand=True, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    drawn.add_column("phase", no_wrap=True)
    for column in ("p50", "p99", "p99.9", "p99/alone", "blocks/s", "work", "requests"):
        drawn.add_column(column, justify="right", no_wrap=True)
    for row in compare(list(phases)):
        drawn.add_row(*_cells(row), style=_COLOURS.get(row.name, ""))
    return drawn


def _cells(row: DemoRow) -> list[str]:
    p50, p99, p999 = (milliseconds(value) for value in row.quantiles.tolist())
    ratio = "-" if not np.isfinite(row.p99_ratio) else f"x {row.p99_ratio:.2f}"
    work = f"{row.blocks_per_second:.0f}" if row.blocks_per_second else "-"
    return [row.name, p50, p99, p999, ratio, work, percent(row.work_ratio), str(row.requests)]


def sparkline(values: Floats, top: float) -> str:
    """Return a line with one character for each value."""
    scaled = np.clip(np.nan_to_num(values) / max(top, 1e-9) * (len(_BLOCKS) - 1), 0, len(_BLOCKS) - 1)
    return "".join(" " if np.isnan(value) else _BLOCKS[int(level)] for value, level in zip(values, scaled, strict=True))


def live(
    finished: Sequence[DemoPhase], now: DemoPhase, left_seconds: float, agent_lines: Sequence[str]
) -> RenderableType:
    """Return the screen while a phase runs: phases so far, moving p99, lines of the agent."""
    phases = [*finished, now]
    tracks = [rolling_p99(phase.at, phase.latency, phase.seconds) for phase in phases]
    top = max((float(np.nanmax(track)) for track in tracks if np.isfinite(track).any()), default=1.0)
    lines = Text()
    for phase, track in zip(phases, tracks, strict=True):
        lines.append(f"{phase.name:>12} ")
        lines.append(sparkline(track, top), style=_COLOURS.get(phase.name, ""))
        lines.append(f" {milliseconds(float(track[-1])) if len(track) else ''}\n")
    words = Text("\n".join(agent_lines[-6:]) or "no verdict yet", overflow="ellipsis", no_wrap=True)
    return Group(
        table(phases, title=f"{now.name}: {max(left_seconds, 0):.0f} s left"),
        Panel(lines, title="p99 of the last 3 s", title_align="left"),
        Panel(words, title="koordlet says", title_align="left"),
    )


def save_picture(phases: Sequence[DemoPhase], path: Path, actions: Sequence[tuple[float, str]]) -> None:
    """Draw the latency of every request and the moving p99 over all phases, best-effort work below.

    `actions` are the agent's: seconds from the start of the last phase, and what was set.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 6.5), height_ratios=(3, 1), layout="constrained")
    start = 0.0
    ticks, names = [], []
    rows = compare(list(phases))
    for phase, row in zip(phases, rows, strict=True):
        colour = {"green": "#2a9d5c", "red": "#d1495b", "cyan": "#00798c"}[_COLOURS[phase.name]]
        upper.plot(start + phase.at, phase.latency * 1e3, ".", markersize=2.5, alpha=0.35, color=colour)
        track = rolling_p99(phase.at, phase.latency, phase.seconds)
        upper.plot(start + 0.5 * np.arange(1, len(track) + 1), track * 1e3, color=colour, linewidth=2)
        upper.axvline(start, color="#888888", linewidth=0.6)
        label = f"{phase.name}: p50 {milliseconds(row.quantiles[0])}, p99 {milliseconds(row.quantiles[1])}"
        upper.text(start + phase.seconds / 2, 1.01, label, transform=upper.get_xaxis_transform(), ha="center")
        lower.bar(start + phase.seconds / 2, row.blocks_per_second, width=phase.seconds * 0.9, color=colour, alpha=0.8)
        ticks.append(start + phase.seconds / 2)
        names.append(
            phase.name if np.isnan(row.work_ratio) or phase.name == "alone" else f"{phase.name} ({row.work_ratio:.0%})"
        )
        start += phase.seconds
    last = start - phases[-1].seconds
    for at, words in actions[:4]:
        upper.axvline(last + at, color="#444444", linewidth=0.8, linestyle=":")
        upper.text(
            last + at, 0.98, f" {words}", transform=upper.get_xaxis_transform(), va="top", fontsize=8, rotation=90
        )
    upper.set_yscale("log")
    upper.set_ylabel("latency, ms (dots: requests; line: p99 of 3 s)")
    upper.set_xlabel("seconds")
    upper.set_xlim(0, start)
    lower.set_xlim(0, start)
    lower.set_xticks(ticks, names)
    lower.set_ylabel("best-effort\nblocks/s")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    figure.savefig(path, dpi=130)
    plt.close(figure)
