"""`koord-manager backtest`: predictors of the next hour's peak on traces, without a cluster."""

import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from controllers.forecast.backtest import OURS, Score, day_scores, scores
from controllers.forecast.scaling import ScalingScores, scaling
from controllers.forecast.traces import Trace, TraceError, generated, machine_usage, node_metrics, plain_series

USAGE_ERROR = 2
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--generated", "seeds", type=int, multiple=True, help="A generated trace with this seed; default 1.")
@click.option("--machine-usage", "machines", type=_FILE, multiple=True, help="CSV of the public 2018 cluster trace.")
@click.option("--node-metrics", "metrics", type=_FILE, multiple=True, help="Recorded NodeMetrics, one JSON a line.")
@click.option("--series", type=_FILE, multiple=True, help="A series, lines of ts,value; all make one trace.")
@click.option("--warm-up", type=click.IntRange(2), default=72, show_default=True, help="Hours that are not judged.")
@click.option("--day-ahead", is_flag=True, help="What is said at the start of a day about all of its hours, for pools.")
@click.option("--scaling", "scales", is_flag=True, help="Compare autoscalers with and without the forecast instead.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form.")
def backtest(
    seeds: tuple[int, ...],
    machines: tuple[Path, ...],
    metrics: tuple[Path, ...],
    series: tuple[Path, ...],
    warm_up: int,
    day_ahead: bool,
    scales: bool,
    output: str,
) -> None:
    """Compare predictors of the next hour's peak on past usage (docs/forecast.md).

    COVERED is the part of hours whose peak stayed below the forecast, COST what was forecast above the peak, MISSED the
    part of hours with a higher peak, OURS what the seasonal forecast misses at the same cost.

    With --scaling, of steps of five minutes: MISSED is the part in which more was used than the replicas carry, PEAKS
    the part of days whose busiest step was one of them, COST the capacity in mean uses.

    \b
    koord-manager backtest
    koord-manager backtest --day-ahead
    koord-manager backtest --scaling --machine-usage machine_usage.csv
    koord-manager backtest --machine-usage machine_usage.csv --node-metrics recorded.jsonl
    """
    readers: list[Callable[[], Trace]] = [lambda seed=seed: generated(seed=seed) for seed in seeds]  # type: ignore[misc]
    readers += [lambda path=path: machine_usage(path) for path in machines]  # type: ignore[misc]
    readers += [lambda path=path: node_metrics(path) for path in metrics]  # type: ignore[misc]
    readers += [lambda: plain_series(series)] if series else []
    found: dict[str, list[Score]] = {}
    scaled: dict[str, ScalingScores | None] = {}
    hidden = not sys.stderr.isatty()
    with click.progressbar(readers or [generated], label="traces", file=sys.stderr, hidden=hidden) as progress:
        for reader in progress:
            try:
                trace = reader()
            except TraceError as error:
                click.echo(f"error: {error}", err=True)
                sys.exit(USAGE_ERROR)
            series_count, hours = trace.samples.shape[:2]
            name = f"{trace.name}: {series_count} series, {hours} hours"
            if scales:
                scaled[name] = scaling(trace.samples, trace.first_hour, warm_up)
                continue
            judge = day_scores if day_ahead else scores
            found[name] = judge(trace.samples, trace.first_hour, warm_up)
    if output == "json":
        click.echo(msgspec.json.encode(scaled if scales else found))
        return
    for name, compared in scaled.items():
        click.echo(name)
        for line in scaling_text(compared):
            click.echo(f"  {line}")
    for name, table in found.items():
        click.echo(name)
        if not table:
            click.echo("  too short: no hour is left after the warm-up; see --warm-up")
        for line in text(table):
            click.echo(f"  {line}")


def text(table: list[Score]) -> list[str]:
    """Return a table for people, and a line on who missed fewer at equal cost."""
    if not table:
        return []
    lines = [f"{'PREDICTOR':18} {'COVERED':>8} {'COST':>8} {'MISSED':>8} {'OURS':>8}"]
    lines += [
        f"{each.predictor:18} {each.coverage:8.1%} {each.cost:8.1%} {each.missed:8.2%} {each.ours_missed:8.2%}"
        for each in table
    ]
    others = [each for each in table if each.predictor != OURS]
    better = [each.predictor for each in others if each.missed > each.ours_missed]
    worse = [each.predictor for each in others if each.missed <= each.ours_missed]
    said = f"at equal cost {OURS} misses fewer peaks than {', '.join(better) or 'none'}"
    return [*lines, said + (f", not fewer than {', '.join(worse)}" if worse else "")]


def scaling_text(compared: ScalingScores | None) -> list[str]:
    """Return a table for people of the autoscalers on one trace."""
    if compared is None:
        return ["too short: no hour is left after the warm-up; see --warm-up"]
    table = (
        ("by use", compared.reactive),
        ("by use and forecast", compared.ahead),
        ("by use, at that cost", compared.reactive_at_cost),
    )
    return [
        f"{'REPLICAS':20} {'TARGET':>7} {'COST':>7} {'MISSED':>8} {'PEAKS':>8}",
        *(
            f"{name:20} {each.target:7.0%} {each.cost:7.1%} {each.missed:8.2%} {each.missed_peaks:8.2%}"
            for name, each in table
        ),
    ]
