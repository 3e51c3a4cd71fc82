"""Time of each question of `koord-manager analyze`: `python -m bench.lake DIR [--nodes 200] [--days 365]`.

Generates tables as `koord-manager compact` leaves them: `nodes` at 5 minutes, `profiles` at an hour for twenty
containers of each node, `verdicts` at 5 minutes while there is harm, `actions`. Use follows day and week with noise.
What is in DIR already is kept and asked again.
"""

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from api.lake import METADATA_KEY, SCHEMA, TABLES, kind_of
from controllers.analysis.engines import DuckDb, Spark
from controllers.analysis.prices import Prices, parameters
from controllers.analysis.questions import QUESTIONS

Values = NDArray[Any]
Codes = NDArray[Any]

BEGIN = 1_735_689_600
"""2025-01-01."""
DAY = 86_400
GIB = float(1 << 30)
SERVICES, BATCHES = 14, 6
"""Containers of each node."""


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--nodes", default=200, show_default=True)
@click.option("--days", default=365, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb")
def main(folder: Path, nodes: int, days: int, rounds: int, engine: str) -> None:
    if not folder.exists():
        generate(folder, nodes, days)
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    click.echo(f"{size / 1e6:.0f} MB")
    with (Spark if engine == "spark" else DuckDb)(folder) as opened:
        for table in TABLES:
            click.echo(f"{table}: {opened.ask(f'SELECT count(*) FROM {table}').rows[0][0]:,} rows")
        for name, question in QUESTIONS.items():
            sql = question.sql
            for key, value in parameters(Prices(), "namespace").items() if name == "cost" else ():
                sql = sql.replace(f"{{{key}}}", value)
            taken = []
            for _ in range(rounds):
                began = time.perf_counter()
                answer = opened.ask(sql)
                taken.append(time.perf_counter() - began)
            click.echo(f"{name:12} {statistics.median(taken):6.2f} s  {len(answer.rows)} rows, {answer.rows[0]}")


def generate(folder: Path, nodes: int, days: int) -> None:
    """Write the tables, a file a month."""
    draw = np.random.default_rng(1)
    level = draw.uniform(0.15, 0.35, nodes)
    with click.progressbar(range(0, days, 30), label="generating") as months:
        for first in months:
            _month(folder, draw, level, first, min(30, days - first))


def _month(folder: Path, draw: np.random.Generator, level: Values, first: int, days: int) -> None:
    nodes = len(level)
    times = BEGIN + (first * DAY) + np.arange(days * 288) * 300.0
    shape = 1 + 0.5 * np.sin(2 * np.pi * times / DAY) + 0.15 * np.sin(2 * np.pi * times / (7 * DAY))
    at = np.repeat(times, nodes)
    node = np.tile(np.arange(nodes), len(times))
    service = np.round(np.maximum(np.outer(shape, level).ravel() * 64 + draw.normal(0, 1.5, len(at)), 0.1), 2)
    batch = np.round(np.maximum(20 - service * 0.4 + draw.normal(0, 1, len(at)), 0), 2)
    memory_service, memory_batch = np.round(service * 4, 1) * GIB, np.round(batch * 2, 1) * GIB
    requested = np.round(np.repeat(level[None, :] * 64 * 2.2, len(times), 0).ravel(), 2)
    columns = {
        "time": at,
        "seconds": np.full(len(at), 300.0),
        "logical_cores": np.full(len(at), 64.0),
        "physical_cores": np.full(len(at), 32.0),
        "memory_total_bytes": np.full(len(at), 256 * GIB),
        "cpu_used_service_cores": service,
        "cpu_used_batch_cores": batch,
        "cpu_used_other_cores": np.full(len(at), 1.5),
        "memory_used_service_bytes": memory_service,
        "memory_used_batch_bytes": memory_batch,
        "memory_used_other_bytes": np.full(len(at), 4 * GIB),
        "cpu_requested_cores": requested,
        "memory_requested_bytes": np.round(requested * 6) * GIB,
    }
    _write(folder, "nodes", first, at, node, columns, {})
    _profiles(folder, draw, level, first, days)
    _harm(folder, draw, nodes, first, days)


def _profiles(folder: Path, draw: np.random.Generator, level: Values, first: int, days: int) -> None:
    nodes, each = len(level), SERVICES + BATCHES
    times = BEGIN + first * DAY + np.arange(days * 24) * 3600.0
    at = np.repeat(times, nodes * each)
    node = np.tile(np.repeat(np.arange(nodes), each), len(times))
    slot = np.tile(np.arange(each), len(times) * nodes)
    workload = (node * 7 + slot * 13) % 400
    cores = np.round(draw.gamma(2.0, 0.6, len(at)), 2)
    columns = {
        "time": at,
        "seconds": np.full(len(at), 3600.0),
        "cpu_cores": cores,
        "cpu_cores_max": np.round(cores * 1.8, 2),
        "memory_bytes": np.round(cores * 3, 1) * GIB,
        "cpu_request_cores": np.where(slot < SERVICES, 3.0, np.nan),
        "memory_request_bytes": np.where(slot < SERVICES, 8 * GIB, np.nan),
        "oom_kills": np.zeros(len(at)),
    }
    texts = {
        "workload": [f"Deployment/team-{number % 20}/app-{number}" for number in range(400)],
        "namespace": [f"team-{number % 20}" for number in range(400)],
        "path": [f"/kubepods/pod{number}" for number in range(nodes * each)],
        "qos": ["LS", "BE"],
    }
    codes = {"workload": workload, "namespace": workload, "path": node * each + slot, "qos": (slot >= SERVICES) * 1}
    packed = {name: (values, codes[name]) for name, values in texts.items()}
    _write(folder, "profiles", first, at, node, columns, packed)


def _harm(folder: Path, draw: np.random.Generator, nodes: int, first: int, days: int) -> None:
    count = days * nodes * 12
    at = np.sort(BEGIN + first * DAY + draw.integers(0, days * 288, count) * 300.0)
    node = draw.integers(0, nodes, count)
    slot, culprit = draw.integers(0, SERVICES, count), SERVICES + draw.integers(0, BATCHES, count)
    each = SERVICES + BATCHES
    names = [f"Deployment/team-{number % 20}/app-{number}" for number in range(400)]
    spaces = [f"team-{number % 20}" for number in range(400)]
    paths = [f"/kubepods/pod{number}" for number in range(nodes * each)]
    victims, culprits = (node * 7 + slot * 13) % 400, (node * 7 + culprit * 13) % 400
    numbers = {
        "time": at,
        "seconds": np.full(count, 300.0),
        "lost_seconds": np.round(draw.exponential(12.0, count), 2),
    }
    texts = {
        "victim": (paths, node * each + slot),
        "victim_workload": (names, victims),
        "victim_namespace": (spaces, victims),
        "resource": (["cpu", "memory", "blockio", "network"], draw.integers(0, 4, count)),
        "culprit": (paths, node * each + culprit),
        "culprit_workload": (names, culprits),
        "culprit_namespace": (spaces, culprits),
        "how": (["direct", "correlated"], draw.integers(0, 2, count)),
    }
    _write(folder, "verdicts", first, at, node, numbers, texts)
    chosen = np.sort(draw.choice(count, count // 50, replace=False))
    for outcome, later in (("set", 300.0), ("restored", 1200.0)):
        acted = {
            "time": at[chosen] + later,
            "dry_run": np.zeros(len(chosen)),
            "lease_seconds": np.full(len(chosen), 30.0),
        }
        said = {name: (texts[source][0], texts[source][1][chosen]) for name, source in _ACTED.items()}
        none = np.zeros(len(chosen), np.int64)
        said |= {"outcome": ([outcome], none), "file": (["cpu.max"], none), "strategy": (["response"], none)}
        _write(folder, "actions", first, acted["time"], node[chosen], acted, said, outcome)


_ACTED = {"victim": "victim", "target": "culprit"}


def _write(
    folder: Path,
    table: str,
    first: int,
    at: Values,
    node: Codes,
    numbers: Mapping[str, Values],
    texts: Mapping[str, tuple[list[str], Codes]],
    part: str = "0",
) -> None:
    columns: dict[str, object] = {}
    for name in TABLES[table]:
        if name in numbers:
            columns[name] = pa.array(numbers[name], mask=np.isnan(numbers[name]))
        elif name in texts:
            values, codes = texts[name]
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values))
        else:
            columns[name] = pa.nulls(len(at), pa.string() if kind_of(name) == "text" else pa.float64())
    days = ((at - BEGIN) // DAY).astype(np.int32)
    dates = [str(np.datetime64("2025-01-01") + day) for day in range(int(days.max(initial=0)) + 1)]
    columns["date"] = pa.DictionaryArray.from_arrays(pa.array(days), pa.array(dates))
    names = [f"node-{number}" for number in range(int(node.max(initial=0)) + 1)]
    columns["node"] = pa.DictionaryArray.from_arrays(pa.array(node.astype(np.int32)), pa.array(names))
    path = folder / table / f"month={first // 30:04d}" / f"part-{part}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    made = pa.table(columns).replace_schema_metadata({METADATA_KEY: SCHEMA})
    pq.write_table(made, path, compression="zstd", row_group_size=500_000)


if __name__ == "__main__":
    main()
