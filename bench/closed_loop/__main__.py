"""The closed loop: `python -m bench.closed_loop [--nodes 200] [--days 14] [--seed 1] [--out FOLDER]`.

Services that follow the day, and batch work without end, on one cluster under several rules: no co-location,
Koordinator's by its defaults and four other settings, and koord. The scheduler's engine places every pod, overcommit's
formulas and factor decide what is sold, and profiles are learned from what nodes measure. Harm, residual harm and the
cost of protection are fitted to bench.protect, and harm is swept. The table says what was used, lost and moved.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bench.closed_loop.rules import ALL, ALONE, KOORD
from bench.closed_loop.run import Outcome, Run
from bench.closed_loop.world import world


@click.command(help=__doc__)
@click.option("--nodes", default=200, show_default=True)
@click.option("--days", default=14.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--scale", "scales", multiple=True, type=float, default=(0.5, 1.0, 2.0), show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for table and plot.")
def main(nodes: int, days: float, seed: int, scales: tuple[float, ...], out: Path | None) -> None:
    began = time.process_time()
    shared = world(nodes, seed)
    chosen = [(rules, (scale,)) for rules in ALL if rules.knows_harm for scale in scales]
    chosen += [(rules, scales) for rules in ALL if not rules.knows_harm]
    outcomes: list[Outcome] = []
    with click.progressbar(length=len(chosen) * int(days), label="days", file=sys.stderr) as bar:
        for rules, own in chosen:
            found = Run(rules, shared, nodes, seed, *own).run(days, lambda: bar.update(1))
            outcomes += [found] if rules.knows_harm else [found.at(scale) for scale in own]
    outcomes = [
        each
        for scale in scales
        for each in outcomes
        if each.scale == scale and (each.rules != ALONE.name or scale == scales[0])
    ]
    text = report(outcomes)
    click.echo(text)
    click.echo(f"{nodes} nodes, {days:g} days, seed {seed}: {time.process_time() - began:.0f} s of CPU", err=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "closed-loop.md").write_text(text + "\n", encoding="utf-8")
        plot(outcomes, out / "closed-loop.svg")


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the table, and where the gain ends."""
    lines = [
        "| harm | rules | utilisation | lost by services | batch core-hours | moved |",
        "|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        harm = f"x{each.scale:g}" if each.rules != ALONE.name else "-"
        lines.append(
            f"| {harm} | {each.rules} | {100 * each.utilisation:.1f} % | {100 * each.lost_part:.2f} % |"
            f" {each.work_core_hours:,.0f} | {each.evictions} |"
        )
    return "\n".join([*lines, "", *gains(outcomes)])


def gains(outcomes: Sequence[Outcome]) -> list[str]:
    """Return, for each harm, koord against the best of the other settings that lose no more than it does."""
    found = []
    for scale in dict.fromkeys(each.scale for each in outcomes):
        own = next((each for each in outcomes if each.scale == scale and each.rules == KOORD.name), None)
        others = [each for each in outcomes if each.rules not in (KOORD.name, ALONE.name) and each.scale == scale]
        if own is None or not others:
            continue
        careful = [each for each in others if each.lost_part <= own.lost_part]
        best = max(careful, key=lambda each: each.utilisation, default=None)
        bolder = [each for each in others if each.utilisation >= own.utilisation]
        text = f"harm x{scale:g}: "
        if best is None:
            least = min(others, key=lambda each: each.lost_part)
            text += (
                f"no setting loses as little; the most careful one, {least.rules}, loses {100 * least.lost_part:.2f} %"
            )
            text += f" at {100 * (own.utilisation - least.utilisation):.1f} points less use"
        else:
            gain = 100 * (own.utilisation - best.utilisation)
            text += f"{gain:+.1f} points against {best.rules}, the best that loses no more"
        if bolder:
            end = min(bolder, key=lambda each: each.lost_part)
            text += f"; the gain ends where {100 * end.lost_part:.1f} % may be lost: there {end.rules} uses as much"
        found.append(text)
    return found


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw use against loss, a line for each set of rules."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(each.rules for each in outcomes):
        own = [each for each in outcomes if each.rules == name]
        axes.plot([100 * each.lost_part for each in own], [100 * each.utilisation for each in own], "o-", label=name)
    axes.set_xlabel("time lost by services, %")
    axes.set_ylabel("use of all CPUs, %")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    os.nice(10)
    main()
