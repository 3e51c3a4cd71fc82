"""`koord-manager profile`: sensitivity and aggressiveness of workloads from exported tables, without a cluster."""

from pathlib import Path

import click
import msgspec
import numpy as np

from api.plugin import Unsupported
from cluster.command_line import die
from controllers.analysis.engines import QueryError
from controllers.profiles.merge import T_90, Estimate, Traits, traits
from controllers.profiles.objects import Figures, WorkloadTraits, profiles_of
from controllers.profiles.reports import LOAD_BINS, collect

FAILED = 1


@click.command()
@click.option(
    "--from",
    "lake",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the tables of `koordlet export`.",
)
@click.option("--workload", default="", help="Only workloads whose name contains this.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "objects"]), default="text", show_default=True)
def profile(lake: Path, workload: str, output: str) -> None:
    """Tell how sensitive workloads are to their neighbours, and how much they cost them (docs/profiles.md).

    SENSITIVITY is lost seconds per second per unit of a mean neighbour's pressure, AGGRESSIVENESS the pressure of one
    replica times its strength, each with the error at 90 %. A question mark: known by correlation only.

    \b
    koord-manager profile --from /srv/lake --workload shop/
    koord-manager profile --from /srv/lake -o objects > profiles.json
    """
    try:
        names, sums = collect(lake)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy)
    except (QueryError, OSError) as error:
        die(str(error), hint=f"check that {lake} holds tables of `koordlet export`")
    found = {resource: traits(own, len(names), LOAD_BINS) for resource, own in sums.items()}
    table = [_row(names, found, place) for place, name in enumerate(names) if workload in name]
    if output == "objects":
        click.echo(msgspec.json.encode(profiles_of(table)))
        return
    if output == "json":
        click.echo(msgspec.json.encode(table))
        return
    click.echo(f"{'WORKLOAD':44} {'RESOURCE':16} {'SENSITIVITY':>20} {'AGGRESSIVENESS':>20}")
    for row in table:
        for resource, figures in row.resources.items():
            cells = f"{_cell(figures.sensitivity, figures.error):>20} {_cell(figures.aggressiveness, None):>20}"
            click.echo(f"{row.workload:44} {resource:16} {cells}{'?' if figures.correlated else ''}")


def _row(names: list[str], found: dict[str, Traits], place: int) -> WorkloadTraits:
    return WorkloadTraits(
        names[place],
        {resource: figures for resource, each in found.items() if (figures := _figures(each, place)) is not None},
    )


def _figures(each: Traits, place: int) -> Figures | None:
    sensitive, strong = each.sensitivity, each.strength
    known = np.isfinite(sensitive.value[place]) or np.isfinite(strong.value[place])
    if not known:
        return None
    pressure = float(np.nan_to_num(each.mean_pressure[place]))
    return Figures(
        _number(sensitive, place),
        T_90 * float(np.nan_to_num(sensitive.error[place])),
        _number(strong, place) * pressure,
        bool(sensitive.correlated[place]),
        bool(sensitive.trials[place]),
    )


def _number(estimate: Estimate, place: int) -> float:
    return float(np.nan_to_num(estimate.value[place]))


def _cell(value: float, error: float | None) -> str:
    return f"{value:.4f}" if error is None else f"{value:.4f} +- {error:.4f}"
