"""Samples from the profiles that nodes export: Parquet files of `koordlet run` with `[profiles]`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from api.lake import TABLES
from controllers.recommend.usage import Usage
from detector.histograms import Rows, Values

NAMES = ("workload", "container", "path")
FIGURES = (
    *("time", "cpu_cores", "memory_bytes", "cpu_wait_neighbour", "cpu_wait_quota"),
    *("cpu_request_cores", "memory_request_bytes", "oom_kills"),
)
OTHER_TABLES = frozenset(TABLES) - {"profiles"}
REQUIRED = (*NAMES, "time", "cpu_cores")


class ProfileError(Exception):
    """Profiles cannot be read; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one file, shapes (samples,); what the node did not measure is NaN."""

    aggregates: list[tuple[str, str]]
    """Workload and container of each row."""
    streams: list[str]
    """Node, or folder of its files, and path of the cgroup."""
    figures: dict[str, Values]
    """By name, see FIGURES."""


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the profiles among files and below folders, by name; of an export its table of profiles.

    Raises ProfileError without any.
    """
    found = [file for path in paths for file in (sorted(_profiles(path)) if path.is_dir() else [path])]
    if not found:
        raise ProfileError(f"no Parquet file in {', '.join(map(str, paths))}: export profiles with [profiles] enabled")
    return found


def _profiles(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.parquet"):
        if OTHER_TABLES.isdisjoint(path.relative_to(folder).parts[:-1]):
            yield path


def _node(path: Path) -> str:
    """Return what is the same for all files of a node: its partition of an export, else the folder."""
    return next((part for part in path.parent.parts if part.startswith("node=")), str(path.parent))


def read(path: Path) -> Samples:
    """Return the samples of a file. Raises ProfileError, also where pyarrow is missing."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ProfileError("reading profiles needs pyarrow: pip install 'koord[analysis]'") from error
    try:
        file = pq.ParquetFile(path)
        known = set(file.schema_arrow.names)
        missing = [name for name in REQUIRED if name not in known]
        if missing:
            raise ProfileError(f"{path}: no column {missing[0]}: this is no profile")
        table = file.read([name for name in (*NAMES, *FIGURES) if name in known])
        workloads, containers, paths = (table.column(name).to_pylist() for name in NAMES)
        figures = {
            name: table.column(name).to_numpy().astype(np.float64) if name in known else np.full(table.num_rows, np.nan)
            for name in FIGURES
        }
    except (OSError, ValueError, TypeError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise ProfileError(f"{path}: {error}") from error
    return Samples(list(zip(workloads, containers, strict=True)), [f"{_node(path)}:{each}" for each in paths], figures)


class Collected:
    """Usage of everything that was read, and the samples' losses for `losses`; memory grows with the samples."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.aggregates: dict[tuple[str, str], int] = {}
        """Row of each workload's container."""
        self._streams: dict[tuple[int, str], int] = {}
        self._rows: list[Rows] = []
        self._figures: list[dict[str, Values]] = []

    def add(self, samples: Samples) -> None:
        """Add the samples of a file; the files of a node come in order of time."""
        rows = np.array([self.aggregates.setdefault(key, len(self.aggregates)) for key in samples.aggregates], np.intp)
        keys = list(zip(rows.tolist(), samples.streams, strict=True))
        new = list(dict.fromkeys(key for key in keys if key not in self._streams))
        opened = self.usage.open(np.array([row for row, _ in new], np.intp))
        self._streams.update(zip(new, opened.tolist(), strict=True))
        streams = np.array([self._streams[key] for key in keys], np.intp)
        figures = samples.figures
        self.usage.add_cpu(streams, figures["time"], figures["cpu_cores"])
        self.usage.add_memory(streams, figures["time"], figures["memory_bytes"])
        self._add_oom_kills(streams, figures)
        self._rows.append(rows)
        self._figures.append(figures)

    def _add_oom_kills(self, streams: Rows, figures: dict[str, Values]) -> None:
        """Add the kills in order of time; those of one moment are of distinct streams."""
        killed = np.flatnonzero(np.nan_to_num(figures["oom_kills"], nan=0.0) > 0)
        times, requests = figures["time"][killed], np.nan_to_num(figures["memory_request_bytes"][killed], nan=0.0)
        for time in np.unique(times):
            now = times == time
            own, places = np.unique(streams[killed][now], return_index=True)
            self.usage.add_oom(own, times[now][places], requests[now][places])

    @property
    def rows(self) -> Rows:
        """Aggregate of each sample."""
        return np.concatenate(self._rows) if self._rows else np.zeros(0, np.intp)

    def figure(self, name: str) -> Values:
        """Return a column of all samples."""
        return np.concatenate([each[name] for each in self._figures]) if self._figures else np.zeros(0)

    def requests(self) -> Values:
        """Return the mean CPU request of each aggregate in cores, NaN where it is not known."""
        rows, requests = self.rows, self.figure("cpu_request_cores")
        known = np.isfinite(requests)
        count = len(self.aggregates)
        total = np.bincount(rows[known], weights=requests[known], minlength=count)
        samples = np.bincount(rows[known], minlength=count)
        return np.where(samples > 0, total / np.maximum(samples, 1), np.nan)
