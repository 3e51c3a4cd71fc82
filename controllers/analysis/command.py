"""`koord-manager analyze` and `koord-manager compact`: questions over exported tables, without a cluster."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from api.plugin import Unsupported
from cluster.command_line import die
from controllers.analysis.compact import compact as write_compact
from controllers.analysis.engines import Answer, DuckDb, QueryError, Spark
from controllers.analysis.prices import Payer, Prices, parameters
from controllers.analysis.questions import QUESTIONS

FAILED, USAGE_ERROR = 1, 2
_LAKE = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--from", "lake", required=True, type=_LAKE, help="Folder of the tables.")
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows of a table for people.")
@click.option("--prices", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Prices, TOML.")
@click.option("--by", type=click.Choice(["quota", "namespace", "workload"]), default="namespace", help="Who pays.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw the answer as PNG.")
@click.option("--sql", "only_sql", is_flag=True, help="Print the SQL text and stop.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form.")
@click.argument("question", type=click.Choice(list(QUESTIONS)))
def analyze(
    lake: Path,
    engine: str,
    limit: int,
    prices: Path | None,
    by: Payer,
    picture: Path | None,
    only_sql: bool,
    output: str,
    question: str,
) -> None:
    """Answer a question from what nodes exported (docs/analysis.md).

    \b
    koord-manager analyze --from /srv/lake utilisation
    koord-manager analyze --from /srv/lake apart --limit 50
    koord-manager analyze --from /srv/lake cost --prices prices.toml --by quota
    koord-manager analyze --from /srv/lake mean --plot mean.png
    """
    asked = QUESTIONS[question]
    sql = asked.sql
    if question == "cost":
        for name, value in _parameters(prices, by).items():
            sql = sql.replace(f"{{{name}}}", value)
    if only_sql:
        click.echo(sql.strip())
        return
    try:
        with (Spark if engine == "spark" else DuckDb)(lake) as opened:
            answer = opened.ask(sql)
        if picture is not None:
            from controllers.analysis.plots import plot

            plot(asked, answer, picture)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy)
    except (QueryError, OSError) as error:
        die(str(error), hint=f"check that {lake} holds tables of `koordlet export`")
    if output == "json":
        click.echo(msgspec.json.encode([dict(zip(answer.columns, row, strict=True)) for row in answer.rows]))
    elif not answer.rows:
        click.echo("nothing: the tables that the question reads have no rows")
    else:
        _print(asked.title, answer, limit)


@click.command()
@click.option("--from", "lake", required=True, type=_LAKE, help="Folder of the tables.")
@click.option("--to", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the new ones.")
def compact(lake: Path, to: Path) -> None:
    """Rewrite tables with one file a month, which is many times faster to read than one a node and day.

    \b
    koord-manager compact --from /srv/lake --to /srv/months
    """
    if to.resolve() == lake.resolve():
        die("--to is the folder that is read", hint="name another folder", code=USAGE_ERROR)
    try:
        for table, rows in write_compact(lake, to).items():
            click.echo(f"{table}: {rows} rows")
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy)
    except (QueryError, OSError) as error:
        die(str(error))


def _parameters(path: Path | None, by: Payer) -> dict[str, str]:
    try:
        prices = msgspec.toml.decode(path.read_bytes(), type=Prices) if path else Prices()
        return parameters(prices, by)
    except (OSError, ValueError) as error:
        die(f"{path}: {error}", hint="keys: cpu_core_hour, memory_gib_hour, lost_hour, [quotas]", code=USAGE_ERROR)


def _print(title: str, answer: Answer, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for place, name in enumerate(answer.columns):
        is_number = all(isinstance(row[place], (int, float)) for row in answer.rows[:limit])
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in answer.rows[:limit]:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    if len(answer.rows) > limit:
        console.print(f"{len(answer.rows) - limit} more rows; --limit shows them")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.12g}" if isinstance(value, float) else str(value)
