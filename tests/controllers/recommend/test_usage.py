"""Samples of usage against figures of the Vertical Pod Autoscaler, and against a model that takes one at a time."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.recommend.usage import (
    CPU_BUCKETS,
    CPU_SAMPLE_WEIGHT,
    HALF_LIFE_SECONDS,
    MEMORY_BUCKETS,
    MEMORY_INTERVAL_SECONDS,
    Usage,
)

MIB = 1 << 20
DAY = 24 * 3600.0
NOW = 1_700_000_000.0


def one(streams: int = 1) -> Usage:
    usage = Usage()
    usage.open(np.zeros(streams, np.intp))
    return usage


def row(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def streams(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.intp)


def memory_of(usage: Usage, quantile: float) -> float:
    return float(usage.memory.percentile(streams(0), quantile)[0])


def test_the_buckets() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (176, 176)


def test_percentiles_of_cpu() -> None:
    usage = one()
    cores = np.append(np.full(93, 0.5), np.full(7, 1.0))
    assert usage.add_cpu(np.zeros(100, np.intp), NOW + np.arange(100) * 1e-3, cores) == 100
    assert usage.cpu.percentile(streams(0), 0.9)[0] == pytest.approx(0.5111, abs=1e-4)
    assert usage.cpu.percentile(streams(0), 0.95)[0] == pytest.approx(1.0163, abs=1e-4)


def test_samples_that_are_not_newer_do_not_count() -> None:
    usage = one(2)
    assert usage.add_cpu(streams(0, 0, 0, 1), row(NOW, NOW, NOW + 60, NOW), row(1, 2, 3, 4)) == 3
    assert usage.add_cpu(streams(0, 1), row(NOW + 60, NOW + 1), row(1, 1)) == 1
    assert usage.cpu_samples.tolist() == [4]
    assert (usage.first_cpu_seconds[0], usage.last_cpu_seconds[0]) == (NOW, NOW + 60)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_not_measured_does_not_count(bad: float) -> None:
    usage = one()
    assert usage.add_cpu(streams(0), row(NOW), row(bad)) == 0
    assert usage.add_memory(streams(0), row(NOW), row(bad)) == 0
    assert usage.add_cpu(streams(0), row(math.nan), row(1.0)) == 0
    assert not usage.cpu.weights.any()
    assert not usage.memory.weights.any()


def test_an_interval_has_one_peak_of_memory() -> None:
    usage = one()
    for minute, mebibytes in enumerate((100, 300, 200, 50)):
        usage.add_memory(streams(0), row(NOW + 60 * minute), row(mebibytes * MIB))
    assert np.count_nonzero(usage.memory.weights > 1e-6) == 1
    assert 300 * MIB <= memory_of(usage, 0.5) <= 300 * MIB * 1.06
    usage.add_memory(streams(0), row(NOW + 3 * DAY + 60), row(100 * MIB))
    assert usage.interval_end_seconds[0] == NOW + 4 * DAY
    assert memory_of(usage, 0.2) <= 100 * MIB * 1.1
    assert memory_of(usage, 0.95) >= 300 * MIB


@pytest.mark.parametrize(
    ("request_mib", "peak_mib", "expected_mib"), [(100, 0, 200), (100, 1000, 1200), (100, 600, 720)], ids=str
)
def test_an_oom_kill_asks_for_more(request_mib: int, peak_mib: int, expected_mib: int) -> None:
    usage = one()
    if peak_mib:
        usage.add_memory(streams(0), row(NOW), row(peak_mib * MIB))
    usage.add_oom(streams(0), row(NOW), row(request_mib * MIB))
    assert usage.oom_peak_bytes[0] == expected_mib * MIB
    assert np.count_nonzero(usage.memory.weights > 1e-6) == 1
    usage.add_oom(streams(0), row(NOW + 1), row(request_mib * MIB))
    assert usage.oom_peak_bytes[0] == expected_mib * MIB, "kills do not compound"


def test_an_old_oom_kill_does_not_count() -> None:
    usage = one()
    usage.add_memory(streams(0), row(NOW), row(100 * MIB))
    before = usage.memory.weights.copy()
    usage.add_oom(streams(0), row(NOW - 1.1 * DAY), row(1000 * MIB))
    assert np.array_equal(usage.memory.weights, before)


class Slow:
    """The same rules for one sample at a time."""

    def __init__(self) -> None:
        self.cpu: dict[int, float] = defaultdict(float)
        self.memory: dict[int, float] = defaultdict(float)
        self.last: dict[int, float] = {}
        self.last_memory: dict[int, float] = {}
        self.end: dict[int, float] = {}
        self.peak: dict[int, float] = defaultdict(float)

    @staticmethod
    def weight(at: float) -> float:
        return float(2.0 ** ((at - NOW) / HALF_LIFE_SECONDS))

    def add_cpu(self, stream: int, at: float, cores: float) -> None:
        if at <= self.last.get(stream, -math.inf):
            return
        self.last[stream] = at
        self.cpu[int(CPU_BUCKETS.index(row(cores))[0])] += CPU_SAMPLE_WEIGHT * self.weight(at)

    def add_memory(self, stream: int, at: float, used: float) -> None:
        if at < self.last_memory.get(stream, -math.inf):
            return
        self.last_memory[stream] = at
        end = self.end.setdefault(stream, at)
        if at >= end:
            passed = math.floor((at - end) / MEMORY_INTERVAL_SECONDS) + 1
            end = self.end[stream] = end + passed * MEMORY_INTERVAL_SECONDS
            self.peak[stream] = 0.0
        if used <= self.peak[stream]:
            return
        if self.peak[stream]:
            self.memory[int(MEMORY_BUCKETS.index(row(self.peak[stream]))[0])] -= self.weight(end)
        self.memory[int(MEMORY_BUCKETS.index(row(used))[0])] += self.weight(end)
        self.peak[stream] = used


SAMPLES = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 60), st.floats(0.001, 900.0, allow_subnormal=False), st.integers(1, 10**12)
    ),
    max_size=40,
)


@given(SAMPLES, st.integers(1, 5))
def test_batches_of_any_size_count_as_single_samples_do(
    samples: list[tuple[int, int, float, int]], batches: int
) -> None:
    usage, slow = one(3), Slow()
    for part in np.array_split(np.arange(len(samples)), batches):
        # A batch is taken in order of time, as samples of one at a time come.
        ordered = sorted((samples[place] for place in part), key=lambda each: each[1])
        for stream, hours, cores, used in ordered:
            slow.add_cpu(stream, NOW + hours * 3600.0, cores)
            slow.add_memory(stream, NOW + hours * 3600.0, float(used))
        ids, hours_, cores_, used_ = (list(column) for column in zip(*ordered, strict=True)) if ordered else ([],) * 4
        at = NOW + np.array(hours_, dtype=np.float64) * 3600.0
        usage.add_cpu(np.array(ids, np.intp), at, np.array(cores_, dtype=np.float64))
        usage.add_memory(np.array(ids, np.intp), at, np.array(used_, dtype=np.float64))
    for made, expected in ((usage.cpu, slow.cpu), (usage.memory, slow.memory)):
        wanted = np.zeros(made.buckets.count)
        for bucket, weight in expected.items():
            wanted[bucket] = weight
        if made.reference_seconds is not None:
            wanted *= Slow.weight(NOW + (NOW - made.reference_seconds))
        assert np.allclose(made.weights[0], wanted, atol=1e-9)
