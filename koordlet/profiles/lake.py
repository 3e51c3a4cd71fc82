"""Export of a node: its profiles, harm and actions as partitioned Parquet in the tables of `api/lake.py`.

Samples become means over a grain, and `seconds` is the part of it in which there were any. What is already there is
replaced from the first sample on that the node still has, so an export may be repeated.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from api.kube.times import epoch_seconds
from api.lake import BATCH_CLASSES, METADATA_KEY, SCHEMA, SERVICE_CLASSES, TABLES, kind_of
from koordlet.profiles.segment import PARTIAL
from koordlet.profiles.writer import HARM_FOLDER, SUFFIX

_log = logging.getLogger(__name__)

_WHOLE = 0.95
"""Part of a grain from which a row counts as the whole of it: samples do not begin with it."""

AUDIT_SCHEMA = "koord.audit/v1"
_AUDITED_TEXTS = ("strategy", "target", "name", "qos", "priority", "file", "reason")


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Capacity of the node that exports."""

    logical_cores: int
    physical_cores: int
    memory_bytes: int


class ExportError(Exception):
    """An export is not possible; the message names the file and the remedy."""


def export(
    profiles: Path,
    audit: Sequence[Path],
    to: Path,
    *,
    node: str,
    capacity: NodeCapacity,
    grain_seconds: float,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, int]:
    """Write what a node has kept; return rows by table. Raises ExportError, OSError.

    `progress` is told of days done and of all. A file that is torn is logged and left out.
    """
    pa = _arrow()
    days = _by_day(_files(profiles, "profile-"))
    harm = _by_day(_files(profiles / HARM_FOLDER, "verdicts-"))
    actions = list(_actions(audit))
    rows = dict.fromkeys(TABLES, 0)
    steps = len(days) + len(harm)
    for done, (day, files) in enumerate(days.items()):
        progress(done, steps)
        samples = _read(files)
        if samples is None:
            continue
        containers = _containers(samples, grain_seconds)
        rows["profiles"] += _write(to, "profiles", day, node, containers)
        rows["nodes"] += _write(to, "nodes", day, node, _node(containers, capacity))
    for done, (day, files) in enumerate(harm.items()):
        progress(len(days) + done, steps)
        samples = _read(files)
        if samples is not None:
            rows["verdicts"] += _write(to, "verdicts", day, node, _harm(samples, grain_seconds))
    for day in sorted({_day(action["time"]) for action in actions}):
        own = [action for action in actions if _day(action["time"]) == day]
        rows["actions"] += _write(to, "actions", day, node, pa.Table.from_pylist(own))
    progress(steps, steps)
    return rows


def _arrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ExportError(f"the export needs pyarrow ({error}): pip install 'koord[analysis]'") from error
    return pa


def _files(directory: Path, prefix: str) -> list[Path]:
    return sorted(directory.glob(f"{prefix}*{SUFFIX}")) if directory.is_dir() else []


def _by_day(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files by the day in their names; a segment is whole in the day in which it ends."""
    days: dict[str, list[Path]] = {}
    for path in files:
        days.setdefault(path.name.partition("-")[2][:10], []).append(path)
    return days


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _read(files: Sequence[Path]) -> Any | None:
    pa = _arrow()
    tables = []
    for path in files:
        try:
            tables.append(pa.parquet.read_table(path, partitioning=None))
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors and OSErrors
            _log.warning("%s is left out: %s", path, error)
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _grained(table: Any, grain_seconds: float) -> Any:
    """Round times down to the grain."""
    pa = _arrow()
    compute = pa.compute
    times = compute.multiply(compute.floor(compute.divide(table.column("time"), grain_seconds)), grain_seconds)
    return table.set_column(table.column_names.index("time"), "time", times)


def _grouped(table: Any, keys: Sequence[str], wanted: Mapping[str, tuple[str, str]]) -> Any:
    """Group by keys; `wanted` has source column and aggregation by the name of the result. NaN does not count."""
    pa = _arrow()
    columns = {key: table.column(key) for key in keys}
    for name in {source for source, _ in wanted.values() if source in table.column_names}:
        column = table.column(name)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.float64())
        columns[f"v_{name}"] = pa.compute.if_else(pa.compute.is_nan(column), None, column)
    asked = {name: (f"v_{source}", how) for name, (source, how) in wanted.items() if f"v_{source}" in columns}
    found = pa.table(columns).group_by(list(keys)).aggregate(list(dict.fromkeys(asked.values())))
    made = {key: found.column(key) for key in keys}
    made |= {name: found.column(f"{source}_{how}") for name, (source, how) in asked.items()}
    return pa.table(made)


def _containers(samples: Any, grain_seconds: float) -> Any:
    pa = _arrow()
    keys = ("time", "workload", "container", "namespace", "node_type", "path", "qos")
    count = len(samples)
    for key in keys[1:]:
        if key not in samples.column_names:
            samples = samples.append_column(key, pa.array([""] * count))
    made = {name: (name, "mean") for name in TABLES["profiles"]}
    made |= {"harmed_ratio": ("interference", "mean"), "oom_kills": ("oom_kills", "sum")}
    made |= {f"{name}_max": (name, "max") for name in ("cpu_cores", "memory_bytes")}
    interval = _interval(samples.column("time"), grain_seconds)
    samples = samples.append_column("samples", pa.array([1.0] * count))
    wanted = {name: each for name, each in made.items() if name not in keys} | {"seconds": ("samples", "sum")}
    found = _grouped(_grained(samples, grain_seconds), keys, wanted)
    seconds = [_covered(each * interval, grain_seconds) for each in found.column("seconds").to_pylist()]
    return found.set_column(found.column_names.index("seconds"), "seconds", pa.array(seconds, pa.float64()))


def _interval(times: Any, grain_seconds: float) -> float:
    """Return the time between two samples of the node: the median, as it stands still at times."""
    distinct = np.unique(times.to_numpy())
    return float(np.median(np.diff(distinct))) if len(distinct) > 1 else grain_seconds


def _covered(seconds: float, grain_seconds: float) -> float:
    return grain_seconds if seconds >= _WHOLE * grain_seconds else seconds


def _harm(samples: Any, grain_seconds: float) -> Any:
    pa = _arrow()
    keys = [name for name in TABLES["verdicts"] if kind_of(name) == "text"]
    wanted = {"lost_seconds": ("lost_seconds", "sum"), "seconds": ("seconds", "sum")}
    found = _grouped(_grained(samples, grain_seconds), ["time", *keys], wanted)
    seconds = [_covered(each or 0.0, grain_seconds) for each in found.column("seconds").to_pylist()]
    return found.set_column(found.column_names.index("seconds"), "seconds", pa.array(seconds, pa.float64()))


def _node(containers: Any, capacity: NodeCapacity) -> Any:
    """Return the node's rows from those of its containers; a cgroup above another one with a row is left out.

    A row lasts as long as the longest of its containers'; one that was there for a part of it counts for that part.
    """
    pa = _arrow()
    paths = set(containers.column("path").to_pylist())
    above = {path[: place or 1] for path in paths for place, sign in enumerate(path) if sign == "/"} - {"/"} | {"/"}
    leaves = containers.filter(pa.array([path not in above for path in containers.column("path").to_pylist()]))
    classes = {**dict.fromkeys(SERVICE_CLASSES, "service"), **dict.fromkeys(BATCH_CLASSES, "batch")}
    longest: dict[float, float] = {}
    for time, seconds in zip(*(containers.column(name).to_pylist() for name in ("time", "seconds")), strict=True):
        longest[time] = max(longest.get(time, 0.0), seconds)
    sums: dict[float, dict[str, float]] = {}
    for row in leaves.to_pylist():
        own = sums.setdefault(row["time"], dict.fromkeys(TABLES["nodes"], 0.0))
        group = classes.get(row["qos"], "other")
        own["seconds"] = longest[row["time"]]
        part = row["seconds"] / longest[row["time"]]
        own[f"cpu_used_{group}_cores"] += part * (row.get("cpu_cores") or 0.0)
        own[f"memory_used_{group}_bytes"] += part * (row.get("memory_bytes") or 0.0)
        if group != "batch":
            own["cpu_requested_cores"] += part * (row.get("cpu_request_cores") or 0.0)
            own["memory_requested_bytes"] += part * (row.get("memory_request_bytes") or 0.0)
    fixed = {
        "logical_cores": float(capacity.logical_cores),
        "physical_cores": float(capacity.physical_cores),
        "memory_total_bytes": float(capacity.memory_bytes),
    }
    return pa.Table.from_pylist([{**own, **fixed, "time": time} for time, own in sums.items()])


def _actions(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for number, line in enumerate(lines, start=1):
            try:
                entry = msgspec.json.decode(line, type=dict[str, Any])
                time = epoch_seconds(entry["time"])
                if entry["schema"] != AUDIT_SCHEMA or time is None:
                    raise ValueError(f"no line of {AUDIT_SCHEMA}")
                victim, _, rule = str(entry["verdict"]).partition("|")
                yield {
                    **{name: str(entry.get(name, "")) for name in _AUDITED_TEXTS},
                    "time": time,
                    "victim": victim,
                    "rule": rule,
                    "outcome": str(entry["outcome"]),
                    "value_before": str(entry.get("from", "")),
                    "value_after": str(entry.get("to", "")),
                    "dry_run": float(bool(entry["dry_run"])),
                    "lease_seconds": float(entry["lease_seconds"]),
                }
            except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
                _log.warning("%s:%d is left out: %s", path, number, error)


def _write(to: Path, name: str, day: str, node: str, table: Any) -> int:
    """Write a table with exactly the columns of its schema, in order of time; return its rows.

    Rows that are there and older than the first new one stay: the node keeps its samples for a while only.
    """
    pa = _arrow()
    columns = {}
    for column in TABLES[name]:
        kind = pa.string() if kind_of(column) == "text" else pa.float64()
        known = column in table.column_names
        columns[column] = table.column(column).cast(kind) if known else pa.nulls(len(table), kind)
    metadata = {METADATA_KEY: SCHEMA, "koord.table": name}
    path = to / name / f"date={day}" / f"node={node}" / f"part-0{SUFFIX}"
    made = pa.concat_tables([*_older(path, columns["time"]), pa.table(columns)], promote_options="default")
    sorted_table = made.sort_by("time").replace_schema_metadata(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + PARTIAL)
    try:
        pa.parquet.write_table(sorted_table, partial, compression="zstd")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return len(sorted_table)


def _older(path: Path, times: Any) -> Iterator[Any]:
    pa = _arrow()
    if not path.exists() or not len(times):
        return
    try:
        before = pa.parquet.read_table(path, partitioning=None)
        kept = before.filter(pa.compute.less(before.column("time"), pa.compute.min(times)))
    except (OSError, ValueError, KeyError) as error:
        _log.warning("%s is replaced: %s", path, error)
        return
    yield kept.replace_schema_metadata(None)
