"""`koord-manager recommend`: requests and limits from exported profiles, without a cluster."""

import sys
from pathlib import Path

import click
import msgspec
import numpy as np

from controllers.recommend import report
from controllers.recommend.estimates import recommend as estimate
from controllers.recommend.losses import losses
from controllers.recommend.profiles import Collected, ProfileError, files_of, read

USAGE_ERROR = 2


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A profile, or a folder with profiles of many nodes; may be repeated.",
)
@click.option("--workload", default="", help="Only workloads whose name contains this.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "why"]), default="text", show_default=True, help="Form."
)
def recommend(sources: tuple[Path, ...], workload: str, output: str) -> None:
    """Recommend requests and limits from what containers used and lost.

    CPU and memory are requests, with the bounds in which history leaves them. WAITS is what the container lost to
    neighbours in a day, CURED what the recommended request would have cured of it, LIMIT the CPU limit at which
    throttling ends. A question mark: less than half a day of history.

    \b
    koord-manager recommend --from profiles/
    koord-manager recommend --from profiles/ --workload shop/ -o json
    koord-manager recommend --from profiles/ --workload shop/ -o why
    """
    collected = Collected()
    try:
        files = files_of(sources)
        hidden = not sys.stderr.isatty() or len(files) < 2
        with click.progressbar(files, label="reading profiles", file=sys.stderr, hidden=hidden) as progress:
            for path in progress:
                collected.add(read(path))
    except ProfileError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(USAGE_ERROR)
    found = estimate(collected.usage, np.arange(len(collected.usage)))
    columns = [collected.figure(name) for name in ("cpu_cores", "cpu_wait_neighbour", "cpu_wait_quota")]
    lost = losses(
        collected.rows,
        collected.figure("time"),
        columns,
        requests=collected.requests(),
        targets=found.cpu_millicores.target / 1000.0,
    )
    table = [row for row in report.rows(collected.aggregates, found, lost) if workload in row.workload]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(table)).decode())
        return
    for line in report.text(table) if output == "text" else (line for row in table for line in report.why(row)):
        click.echo(line)
