"""The closed loop: `python -m bench.closed_loop [--nodes 200] [--days 14] [--seed 1] [--out FOLDER]`.

Services that follow the day, and batch work without end, on one cluster under several rules: no co-location,
Koordinator's by its defaults and four other settings, and koord. The scheduler's engine places every pod, overcommit's
formulas and factor decide what is sold, the descheduler moves pods, and profiles are learned from what nodes measure.
Harm, what protection ends of it and what it costs are fitted to bench.protect, and harm is swept. The table says what
was used, lost and moved. Rules that know nothing of harm are counted twice: as they are, and on nodes whose kernel has
batch work yield for good (lowest weight).
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from bench.closed_loop.rules import ALL, ALONE, KOORD, YIELDING
from bench.closed_loop.run import Outcome, Run
from bench.closed_loop.world import WEIGHED, world


@click.command(help=__doc__)
@click.option("--nodes", default=200, show_default=True)
@click.option("--days", default=14.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--scale", "scales", multiple=True, type=float, default=(0.5, 1.0, 2.0), show_default=True)
@click.option("--only", multiple=True, type=click.Choice([each.name for each in ALL]), help="Rules; default: all.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for table and plot.")
def main(
    nodes: int, days: float, seed: int, scales: tuple[float, ...], only: tuple[str, ...], out: Path | None
) -> None:
    began = time.process_time()
    shared = world(nodes, seed)
    weighed = [scale * WEIGHED for scale in scales]
    lived = [rules for rules in ALL if not only or rules.name in only]
    chosen = [(rules, (scale,)) for rules in lived if rules.knows_harm for scale in scales]
    chosen += [(rules, (*scales, *weighed)) for rules in lived if not rules.knows_harm]
    outcomes: list[Outcome] = []
    with click.progressbar(length=len(chosen) * int(days), label="days", file=sys.stderr) as bar:
        for rules, own in chosen:
            found = Run(rules, shared, nodes, seed, *own).run(days, lambda: bar.update(1))
            if rules.knows_harm:
                outcomes.append(found)
            elif rules is ALONE:
                outcomes.append(found.at(scales[0]))
            else:
                outcomes += [found.at(scale) for scale in scales]
                outcomes += [found.at(scale, WEIGHED, YIELDING) for scale in scales]
    order = [each.name for each in ALL]
    outcomes.sort(key=lambda each: (each.scale, YIELDING in each.rules, order.index(each.rules.removesuffix(YIELDING))))
    text = report(outcomes)
    click.echo(text)
    click.echo(f"{nodes} nodes, {days:g} days, seed {seed}: {time.process_time() - began:.0f} s of CPU", err=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "closed-loop.md").write_text(text + "\n", encoding="utf-8")
        plot(outcomes, out / "closed-loop.png")


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the table, and where the gain ends."""
    lines = [
        "| harm | rules | utilisation | lost by services | batch core-hours | batch pods moved | services moved |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        harm = f"x{each.scale:g}" if each.rules != ALONE.name else "-"
        lines.append(
            f"| {harm} | {each.rules} | {100 * each.utilisation:.1f} % | {100 * each.lost_part:.2f} % |"
            f" {each.work_core_hours:,.0f} | {each.moved_batch:,} | {each.moved_services:,} |"
        )
    return "\n".join([*lines, "", *gains(outcomes)])


def gains(outcomes: Sequence[Outcome]) -> list[str]:
    """Return, for each harm, koord against the best of the other settings that lose no more than it does."""
    found = []
    for scale in dict.fromkeys(each.scale for each in outcomes):
        here = [each for each in outcomes if each.scale == scale and each.rules != ALONE.name]
        for yields in (False, True):
            alike = [each for each in here if (YIELDING in each.rules) is yields]
            own = next((each for each in alike if each.rules.startswith(KOORD.name)), None)
            others = [each for each in alike if each is not own]
            if own is not None and others:
                where = f"harm x{scale:g}{YIELDING if yields else ''}"
                found.append(f"{where}: {_against(own, others)}")
    return found


def _against(own: Outcome, others: Sequence[Outcome]) -> str:
    best = max(
        (each for each in others if each.lost_part <= own.lost_part), key=lambda each: each.utilisation, default=None
    )
    if best is None:
        least = min(others, key=lambda each: each.lost_part)
        text = f"no setting loses as little; the most careful one, {least.rules}, loses {100 * least.lost_part:.2f} %"
        text += f" at {100 * (own.utilisation - least.utilisation):.1f} points less use"
    else:
        gain = 100 * (own.utilisation - best.utilisation)
        text = f"{gain:+.1f} points against {best.rules}, the best that loses no more"
    line = sorted(others, key=lambda each: each.lost_part)
    if line[0].lost_part <= own.lost_part <= line[-1].lost_part and len(line) > 1:
        between = float(
            np.interp(own.lost_part, [each.lost_part for each in line], [each.utilisation for each in line])
        )
        text += f" ({100 * (own.utilisation - between):+.1f} against a setting between those tried)"
    bolder = [each for each in others if each.utilisation >= own.utilisation]
    if bolder:
        end = min(bolder, key=lambda each: each.lost_part)
        text += f"; the gain ends where {100 * end.lost_part:.1f} % may be lost: there {end.rules} uses as much"
    return text


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw use against loss, a picture for each harm; Koordinator's settings are a line from careful to bold."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    scales = list(dict.fromkeys(each.scale for each in outcomes))
    figure, row = pyplot.subplots(1, len(scales), figsize=(4.2 * len(scales), 4), sharey=True, squeeze=False)
    alone = [each for each in outcomes if each.rules == ALONE.name]
    for axes, scale in zip(row[0], scales, strict=True):
        here = [each for each in outcomes if each.scale == scale and each.rules != ALONE.name]
        fixed = [each for each in here if not each.rules.startswith(KOORD.name)]
        for yields, style in ((False, "o-"), (True, "s--")):
            line = sorted(
                (each for each in fixed if (YIELDING in each.rules) is yields), key=lambda each: each.lost_part
            )
            label = f"Koordinator{YIELDING if yields else ''}"
            axes.plot(*_points(line), style, color="tab:blue" if yields else "tab:orange", label=label)
        for each in here:
            if each.rules.startswith(KOORD.name):
                color = "tab:blue" if YIELDING in each.rules else "tab:orange"
                axes.plot(*_points([each]), "*", color=color, markersize=16, markeredgecolor="black", label=each.rules)
        axes.plot(*_points(alone), "x", color="black")
        for each in [*here, *alone]:
            if YIELDING not in each.rules and each.rules != KOORD.name:
                text = each.rules.removeprefix("Koordinator, ")
                point = (100 * each.lost_part, 100 * each.utilisation)
                axes.annotate(text, point, textcoords="offset points", xytext=(6, -9), fontsize=7)
        axes.set_title(f"harm x{scale:g}")
        axes.set_xlabel("time lost by services, %")
    row[0][0].set_ylabel("use of all CPUs, %")
    row[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _points(outcomes: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    return [100 * each.lost_part for each in outcomes], [100 * each.utilisation for each in outcomes]


if __name__ == "__main__":
    os.nice(10)
    main()
