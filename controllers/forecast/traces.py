"""Traces of usage for a trial: a generator with stated seasons, NodeMetrics, machine_usage.csv, plain series."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from api.crds import NodeMetric
from api.kube.resources import parse_quantity
from api.kube.times import epoch_seconds
from detector.histograms import Values

HOUR_SECONDS = 3600
SAMPLES_AN_HOUR = 12
MOST_HOURS = 24 * 800
"""Longest trace: a wrong time must not ask for all memory."""


class TraceError(Exception):
    """A trace cannot be read; the message names file, line and remedy."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Usage of some series, shape (series, hours, 12): means of five minutes, NaN where not measured."""

    name: str
    samples: Values
    first_hour: int
    """Hour since the epoch of the first sample."""


def generated(series: int = 60, days: int = 28, seed: int = 1) -> Trace:
    """Return series with a daily wave, in half of them flat at weekends, with noise, jobs at random and growth.

    Amplitudes are 20 to 60 % of the level, noise has a standard deviation of 8 % and a half-life of an hour, a job of
    an hour comes every other day and adds up to 30 %, a quarter of the series grow by 1 % a day.
    """
    draw = np.random.default_rng(seed)
    count = days * 24 * SAMPLES_AN_HOUR
    hours = np.arange(count) / SAMPLES_AN_HOUR
    level = draw.uniform(4.0, 40.0, (series, 1))
    wave = np.sin(2 * np.pi * (hours + draw.uniform(0, 24, (series, 1))) / 24)
    works = draw.random((series, 1)) < 0.5
    weekend = (hours // 24) % 7 >= 5
    amplitude = draw.uniform(0.2, 0.6, (series, 1)) * np.where(works & weekend, 0.3, 1.0)
    shocks = draw.normal(0, 1, (series, count))
    noise = np.zeros((series, count))
    keep = 0.5 ** (1 / SAMPLES_AN_HOUR)
    for place in range(1, count):
        noise[:, place] = keep * noise[:, place - 1] + np.sqrt(1 - keep**2) * shocks[:, place]
    jobs = np.zeros((series, count))
    for row in range(series):
        for begin in draw.integers(0, count - SAMPLES_AN_HOUR, days // 2):
            jobs[row, begin : begin + SAMPLES_AN_HOUR] += draw.uniform(0.1, 0.3)
    growth = np.where(draw.random((series, 1)) < 0.25, 1 + 0.01 * hours / 24, 1.0)
    made = np.maximum(level * growth * (1 + amplitude * wave + 0.08 * noise + jobs), 0.0)
    return Trace("generated", made.reshape(series, -1, SAMPLES_AN_HOUR), 24 * 4)  # 1970-01-05 is a Monday


def machine_usage(path: Path) -> Trace:
    """Return CPU use of the public 2018 cluster trace (machine_id, time_stamp, cpu_util_percent, ...).

    Raises TraceError.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    try:
        with path.open(newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if number == 1 and row[:1] == ["machine_id"]:
                    continue
                if len(row) < 3:
                    raise TraceError(f"{path}:{number}: expected machine_id,time_stamp,cpu_util_percent,...")
                if row[2]:
                    points.setdefault(row[0], []).append((float(row[1]), float(row[2])))
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise TraceError(f"{path}: {error}") from error
    return _trace(path.name, points.values(), path)


def node_metrics(path: Path) -> Trace:
    """Return CPU use of nodes from recorded NodeMetrics, one JSON object a line (`kubectl get nodemetrics -w -o json`).

    Raises TraceError.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    metric = msgspec.json.decode(line, type=NodeMetric)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise TraceError(f"{path}:{number}: no NodeMetric: {error}") from error
                status = metric.status
                time = epoch_seconds(status.update_time)
                usage = status.node_metric.node_usage.resources.get("cpu") if status.node_metric else None
                if time is not None and usage is not None:
                    cores = parse_quantity(usage, 1000) / 1000.0
                    points.setdefault(metric.metadata.name, []).append((time, cores))
    except OSError as error:
        raise TraceError(f"{path}: {error}") from error
    return _trace(path.name, points.values(), path)


def plain_series(paths: Iterable[Path]) -> Trace:
    """Return series of files with lines `ts,value`. Raises TraceError."""
    points = []
    last = Path()
    for last in paths:
        own = []
        try:
            with last.open(newline="") as file:
                for row in csv.reader(file):
                    if row[:2] != ["ts", "value"] and row:
                        own.append((float(row[0]), float(row[1])))
        except (OSError, UnicodeDecodeError, csv.Error, ValueError, IndexError) as error:
            raise TraceError(f"{last}: {error}; expected lines of ts,value") from error
        points.append(own)
    return _trace("series", points, last)


def _trace(name: str, series: Iterable[list[tuple[float, float]]], path: Path) -> Trace:
    """Return points as means of five minutes."""
    arrays = [np.array(points) for points in series if points]
    if not arrays:
        raise TraceError(f"{path}: no sample in it")
    times = np.concatenate([points[:, 0] for points in arrays])
    if not np.isfinite(times).all():
        raise TraceError(f"{path}: a time is no number")
    first = int(times.min() // HOUR_SECONDS)
    hours = int(times.max() // HOUR_SECONDS) - first + 1
    if hours > MOST_HOURS:
        raise TraceError(f"{path}: spans {hours} hours, more than {MOST_HOURS}: its times are no seconds")
    count = hours * SAMPLES_AN_HOUR
    made = np.full((len(arrays), count), np.nan)
    for row, points in enumerate(arrays):
        place = ((points[:, 0] - first * HOUR_SECONDS) // (HOUR_SECONDS / SAMPLES_AN_HOUR)).astype(np.int64)
        total = np.bincount(place, weights=points[:, 1], minlength=count)
        number = np.bincount(place, minlength=count)
        made[row] = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return Trace(name, made.reshape(len(arrays), hours, SAMPLES_AN_HOUR), first)
