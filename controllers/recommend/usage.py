"""Usage of containers as decaying histograms: samples of CPU, peaks of memory, OOM kills. Pure.

A *stream* is one container of one pod, an *aggregate* all of a workload's containers of one name: samples are dated by
stream, histograms belong to aggregates. The rules are those of the Vertical Pod Autoscaler's recommender: of CPU each
sample counts that is newer than the stream's last; of memory one peak for each interval, dated at its end, which a
larger sample replaces.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.histograms import Buckets, DecayingHistograms, Rows, Values

CPU_BUCKETS = Buckets(maximum=1000.0, first=0.01)
"""In cores."""
MEMORY_BUCKETS = Buckets(maximum=1e12, first=1e7)
"""In bytes."""
HALF_LIFE_SECONDS = 24 * 3600.0
CPU_SAMPLE_WEIGHT = 0.1
MEMORY_INTERVAL_SECONDS = 24 * 3600.0
OOM_BUMP_RATIO = 1.2
OOM_MIN_BUMP_BYTES = 100 << 20

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


def _empty() -> Values:
    return np.zeros(0)


@dataclass
class Usage:
    """Usage of many containers. Times are wall-clock seconds."""

    cpu: DecayingHistograms = field(default_factory=lambda: DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS))
    memory: DecayingHistograms = field(default_factory=lambda: DecayingHistograms(MEMORY_BUCKETS, HALF_LIFE_SECONDS))
    first_cpu_seconds: Values = field(default_factory=_empty)
    """Of each aggregate, NaN before its first sample; so the two that follow."""
    last_cpu_seconds: Values = field(default_factory=_empty)
    cpu_samples: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    aggregate_of: Rows = field(default_factory=lambda: np.zeros(0, np.intp))
    """Of each stream."""
    stream_cpu_seconds: Values = field(default_factory=_empty)
    """Time of each stream's last sample of CPU."""
    stream_memory_seconds: Values = field(default_factory=_empty)
    """Time of each stream's last sample of memory."""
    interval_end_seconds: Values = field(default_factory=_empty)
    """End of the interval of memory that is under way in each stream."""
    used_peak_bytes: Values = field(default_factory=_empty)
    """Largest memory usage of that interval."""
    oom_peak_bytes: Values = field(default_factory=_empty)
    """Largest memory that an OOM kill of that interval asked for."""

    @classmethod
    def compact(cls) -> "Usage":
        """Return one whose histograms take half the memory, with percentiles within a bucket of the other's."""
        return cls(
            DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS, single=True),
            DecayingHistograms(MEMORY_BUCKETS, HALF_LIFE_SECONDS, single=True),
        )

    def __len__(self) -> int:
        """Return the number of aggregates."""
        return len(self.cpu_samples)

    def open(self, aggregates: Rows) -> Rows:
        """Add a stream to each of some aggregates, which are made where they are new; return the streams."""
        self._resize(int(aggregates.max(initial=-1)) + 1)
        first, count = len(self.aggregate_of), len(aggregates)
        self.aggregate_of = np.append(self.aggregate_of, aggregates)
        for name in ("stream_cpu_seconds", "stream_memory_seconds", "interval_end_seconds"):
            setattr(self, name, np.append(getattr(self, name), np.full(count, np.nan)))
        for name in ("used_peak_bytes", "oom_peak_bytes"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(count)))
        return np.arange(first, first + count)

    def reopen(self, streams: Rows, aggregates: Rows) -> None:
        """Have streams that ended stand for new containers of some aggregates, which are made where they are new."""
        self._resize(int(aggregates.max(initial=-1)) + 1)
        self.aggregate_of[streams] = aggregates
        for name in ("stream_cpu_seconds", "stream_memory_seconds", "interval_end_seconds"):
            getattr(self, name)[streams] = np.nan
        self.used_peak_bytes[streams] = 0.0
        self.oom_peak_bytes[streams] = 0.0

    def clear(self, aggregate: int) -> None:
        """Forget what an aggregate used, so that another may have its row."""
        self.cpu.clear(aggregate)
        self.memory.clear(aggregate)
        self.first_cpu_seconds[aggregate] = self.last_cpu_seconds[aggregate] = np.nan
        self.cpu_samples[aggregate] = 0

    def _resize(self, aggregates: int) -> None:
        missing = aggregates - len(self)
        if missing <= 0:
            return
        self.cpu.resize(aggregates)
        self.memory.resize(aggregates)
        self.first_cpu_seconds = np.append(self.first_cpu_seconds, np.full(missing, np.nan))
        self.last_cpu_seconds = np.append(self.last_cpu_seconds, np.full(missing, np.nan))
        self.cpu_samples = np.append(self.cpu_samples, np.zeros(missing, np.int64))

    def add_cpu(self, streams: Rows, times_seconds: Values, cores: Values) -> int:
        """Add samples of CPU use, shapes (samples,); return how many counted.

        A sample that is not newer than the stream's last one, or not finite, or negative, does not count.
        """
        streams, times_seconds, cores = _ordered(streams, times_seconds, cores)
        counts = _newer(streams, times_seconds, self.stream_cpu_seconds)
        streams, times_seconds, cores = streams[counts], times_seconds[counts], cores[counts]
        if not len(streams):
            return 0
        begins = _begins(streams)
        ends = np.append(begins[1:], len(streams)) - 1
        self.stream_cpu_seconds[streams[begins]] = times_seconds[ends]
        self.cpu.add_many(self.aggregate_of[streams], cores, times_seconds, CPU_SAMPLE_WEIGHT)
        ours = self.aggregate_of[streams[begins]]
        np.fmin.at(self.first_cpu_seconds, ours, times_seconds[begins])
        np.fmax.at(self.last_cpu_seconds, ours, times_seconds[ends])
        np.add.at(self.cpu_samples, ours, ends - begins + 1)
        return len(streams)

    def add_memory(self, streams: Rows, times_seconds: Values, used_bytes: Values) -> int:
        """Add samples of memory use, shapes (samples,); return how many were not too old.

        A sample older than the stream's last one, or not finite, or negative, does not count.
        """
        streams, times_seconds, used_bytes = _ordered(streams, times_seconds, used_bytes)
        counts = ~(times_seconds < self.stream_memory_seconds[streams])
        streams, times_seconds, used_bytes = streams[counts], times_seconds[counts], used_bytes[counts]
        if not len(streams):
            return 0
        begins = _begins(streams)
        self._anchor(streams[begins], times_seconds[begins])
        self._add_peaks(streams, times_seconds, used_bytes, self.used_peak_bytes)
        self.stream_memory_seconds[streams[begins]] = times_seconds[np.append(begins[1:], len(streams)) - 1]
        return len(streams)

    def add_oom(self, streams: Rows, times_seconds: Values, requested_bytes: Values) -> None:
        """Add OOM kills of distinct streams, with the requests at that time (0 without one).

        Each counts as a use of the larger of request and peak plus 100 MiB, or times 1.2, whichever is more. One
        that is more than an interval older than the stream's last sample does not count.
        """
        kept = ~(times_seconds < self.stream_memory_seconds[streams] - MEMORY_INTERVAL_SECONDS)
        streams, times_seconds, requested_bytes = streams[kept], times_seconds[kept], requested_bytes[kept]
        if not len(streams):
            return
        known = np.maximum(requested_bytes, self.used_peak_bytes[streams])
        needed = np.maximum(known + OOM_MIN_BUMP_BYTES, known * OOM_BUMP_RATIO)
        streams, times_seconds, needed = _ordered(streams, times_seconds, needed)
        self._anchor(streams, times_seconds)
        self._add_peaks(streams, times_seconds, needed, self.oom_peak_bytes)

    def _anchor(self, streams: Rows, times_seconds: Values) -> None:
        """Open the first interval of streams at their first sample."""
        new = np.isnan(self.interval_end_seconds[streams])
        self.interval_end_seconds[streams[new]] = times_seconds[new]

    def _add_peaks(self, streams: Rows, times_seconds: Values, used_bytes: Values, peaks: Values) -> None:
        """Add samples, in order of stream and time, as the peaks of their intervals."""
        ends = self.interval_end_seconds[streams]
        passed = np.floor((times_seconds - ends) / MEMORY_INTERVAL_SECONDS) + 1
        interval = np.where(times_seconds < ends, 0.0, passed)
        begins = np.flatnonzero(np.append(True, (np.diff(interval) != 0) | (np.diff(streams) != 0)))
        highest = np.maximum.reduceat(used_bytes, begins)
        streams, interval = streams[begins], interval[begins]
        ends = ends[begins] + interval * MEMORY_INTERVAL_SECONDS
        under_way = interval == 0
        known = np.where(under_way, np.maximum(self.used_peak_bytes[streams], self.oom_peak_bytes[streams]), 0.0)
        counts = highest > known
        replaced = counts & (known > 0)
        rows = self.aggregate_of[streams]
        self.memory.add_many(rows[replaced], known[replaced], ends[replaced], -1.0)
        self.memory.add_many(rows[counts], highest[counts], ends[counts])
        last = np.append(np.diff(streams) != 0, True)
        begun = streams[last & ~under_way]
        self.used_peak_bytes[begun] = 0.0
        self.oom_peak_bytes[begun] = 0.0
        kept = last & counts
        peaks[streams[kept]] = highest[kept]
        self.interval_end_seconds[streams[last]] = ends[last]


def _ordered(streams: Rows, times_seconds: Values, values: Values) -> tuple[Rows, Values, Values]:
    """Return what is measured, in order of stream and time."""
    kept = np.isfinite(values) & np.isfinite(times_seconds) & (values >= 0)
    streams, times_seconds, values = streams[kept], times_seconds[kept], values[kept]
    step = np.diff(streams)
    if not np.all((step > 0) | ((step == 0) & (np.diff(times_seconds) >= 0))):
        order = np.lexsort((times_seconds, streams))
        streams, times_seconds, values = streams[order], times_seconds[order], values[order]
    return streams, times_seconds, values


def _newer(streams: Rows, times_seconds: Values, last_seconds: Values) -> Flags:
    """Return which samples, in order, are newer than the last one of their stream and than the one before."""
    newer: Flags = ~(times_seconds <= last_seconds[streams])
    newer[1:] &= (np.diff(streams) != 0) | (np.diff(times_seconds) > 0)
    return newer


def _begins(streams: Rows) -> Rows:
    """Return the places where the samples of a stream begin."""
    return np.flatnonzero(np.append(True, np.diff(streams) != 0)[: len(streams)])
