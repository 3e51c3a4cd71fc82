"""Engines: the tables of a folder as views, and rows of a SQL text. DuckDB on one machine, Spark beyond."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from api.lake import TABLES, kind_of
from api.plugin import Unsupported


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of an answer."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class QueryError(Exception):
    """A table cannot be read; the message has the engine's words."""


class Engine(Protocol):
    """An engine with the views `profiles`, `nodes`, `verdicts`, `actions`."""

    def ask(self, sql: str) -> Answer:
        """Return the rows of a query. Raises QueryError."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class DuckDb:
    """DuckDB in this process."""

    def __init__(self, lake: Path) -> None:
        """Open the tables below a folder; one that is not there is empty. Raises Unsupported, QueryError."""
        try:
            import duckdb
        except ImportError as error:
            raise Unsupported(f"DuckDB is not installed ({error})", "pip install 'koord[analysis]'") from error
        self._errors = duckdb.Error
        self._connection = duckdb.connect(":memory:")
        if sys.stderr.isatty():
            self._connection.execute("SET enable_progress_bar = true")
        try:
            for table in TABLES:
                self._connection.execute(f"CREATE VIEW {table} AS {_source(lake, table)}")
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def ask(self, sql: str) -> Answer:
        """Return the rows of a query. Raises QueryError."""
        try:
            found = self._connection.execute(sql)
            return Answer([column[0] for column in found.description or ()], found.fetchall())
        except self._errors as error:
            raise QueryError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


class Spark:
    """Spark in local mode, or where `spark-submit` says."""

    def __init__(self, lake: Path) -> None:
        """Open the tables below a folder; one that is not there is empty. Raises Unsupported."""
        remedy = "pip install pyspark, and a Java runtime (apt install default-jre-headless); or --engine duckdb"
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise Unsupported(f"Spark is not installed ({error})", remedy) from error
        try:
            builder = SparkSession.builder.appName("koord-analyze").config("spark.ui.enabled", "false")
            self._session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
            self._fit_to_one_machine()
        except (OSError, RuntimeError) as error:
            raise Unsupported(f"Spark does not start: {error}", remedy) from error
        for table in TABLES:
            if _has_files(lake, table):
                self._session.read.parquet(str(lake / table)).createOrReplaceTempView(table)
            else:
                self._session.sql(_nothing(table)).createOrReplaceTempView(table)

    def _fit_to_one_machine(self) -> None:
        """Shuffle into as many parts as there are CPUs, where Spark runs in this process: its default is 200."""
        context = self._session.sparkContext
        if context.master.startswith("local"):
            self._session.conf.set("spark.sql.shuffle.partitions", str(context.defaultParallelism))

    def ask(self, sql: str) -> Answer:
        """Return the rows of a query. Raises QueryError."""
        from pyspark.errors import PySparkException

        try:
            found = self._session.sql(sql)
            return Answer(list(found.columns), [tuple(row) for row in found.collect()])
        except PySparkException as error:
            raise QueryError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.stop()


def _has_files(lake: Path, table: str) -> bool:
    return next((lake / table).rglob("*.parquet"), None) is not None


def files_of(lake: Path, table: str) -> str:
    """Return what DuckDB reads a table from: all its files, days and nodes as columns."""
    pattern = str(lake / table / "**" / "*.parquet").replace("'", "''")
    return f"read_parquet('{pattern}', hive_partitioning = true, union_by_name = true)"


def _source(lake: Path, table: str) -> str:
    return f"SELECT * FROM {files_of(lake, table)}" if _has_files(lake, table) else _nothing(table)


def _nothing(table: str) -> str:
    kinds = {"text": "STRING", "number": "DOUBLE"}
    columns = [f"CAST(NULL AS {kinds[kind_of(name)]}) AS {name}" for name in TABLES[table]]
    columns += [f"CAST(NULL AS STRING) AS {name}" for name in ("date", "node")]
    return f"SELECT {', '.join(columns)} WHERE 1 = 0"
