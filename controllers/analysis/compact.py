"""Compaction of tables: one file a month, `date` and `node` as columns in it."""

from pathlib import Path

from api.lake import TABLES
from controllers.analysis.engines import DuckDb, files_of


def compact(lake: Path, to: Path) -> dict[str, int]:
    """Rewrite the tables of a folder in another; return rows by table. Raises Unsupported, QueryError, OSError."""
    rows = {}
    with DuckDb(lake) as engine:
        for table in TABLES:
            if next((lake / table).rglob("*.parquet"), None) is None:
                continue
            months = engine.ask(f"SELECT DISTINCT substr(CAST(date AS VARCHAR), 1, 7) FROM {table} ORDER BY 1").rows
            rows[table] = 0
            for (month,) in months:
                folder = to / table / f"month={month}"
                folder.mkdir(parents=True, exist_ok=True)
                partial = folder / "part-0.parquet.new"
                quoted = str(partial).replace("'", "''")
                counted = engine.ask(
                    f"COPY (SELECT * EXCLUDE (date), CAST(date AS VARCHAR) AS date FROM {files_of(lake, table)}"
                    f" WHERE substr(CAST(date AS VARCHAR), 1, 7) = '{month}' ORDER BY time, node)"
                    f" TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)"
                )
                partial.replace(folder / "part-0.parquet")
                rows[table] += int(counted.rows[0][0])
    return rows
