"""The cpu probe's part in user space; what the kernel side counts is in tests/kernel/test_cpu.py."""

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from probes.cpu import (
    JUDGED_PASSES,
    LEAST_PASS_SECONDS,
    MOST_OF_TIME,
    PREPARE_EVERY_READS,
    STATE_RECORD,
    RunningSlices,
    TaskStorage,
    WaitsUnderWay,
)
from probes.libbpf import BpfError

ERRORS = (BpfError("bpf_iter_create", errno.ENOMEM), OSError(errno.EAGAIN, "read"))


def passes(counts: list[int], *, fails: OSError | None = None) -> int:
    """Passes over all threads while the probe reads these counts of waits without storage."""
    made: list[None] = []

    def prepare() -> None:
        made.append(None)
        if fails:
            raise fails

    storage = TaskStorage(prepare)
    for count in counts:
        storage.follow(count)
    return len(made)


def test_threads_are_prepared_anew_where_waits_were_missed() -> None:
    assert passes([0] * 50) == 0
    assert passes([*[0] * PREPARE_EVERY_READS, 1, 1, 1]) == 1
    assert passes([*[7] * (PREPARE_EVERY_READS - 1)]) == 0


def test_a_count_that_goes_on_growing_costs_no_more_than_a_pass_in_ten_reads() -> None:
    assert passes(list(range(1, 10 * PREPARE_EVERY_READS + 1))) == 10
    for error in ERRORS:
        assert passes(list(range(1, 2 * PREPARE_EVERY_READS + 1)), fails=error) == 2


@pytest.mark.parametrize(
    ("takes_seconds", "apart_seconds"),
    [
        pytest.param([0.0001], LEAST_PASS_SECONDS, id="few threads"),
        pytest.param([0.02], 0.02 / MOST_OF_TIME, id="many threads"),
        pytest.param([0.0001, 0.1, 0.1], LEAST_PASS_SECONDS, id="few threads, and others ran in between"),
    ],
)
@pytest.mark.parametrize(
    "fails",
    [
        pytest.param(None, id="works"),
        pytest.param(ERRORS[0], id="cannot begin"),
        pytest.param(ERRORS[1], id="cannot read"),
    ],
)
def test_passes_over_waits_under_way_take_a_small_part_of_the_time(
    takes_seconds: list[float], apart_seconds: float, fails: OSError | None
) -> None:
    begun: list[float] = []
    now = 1000.0

    def charge() -> None:
        nonlocal now
        begun.append(now)
        now += takes_seconds[len(begun) % len(takes_seconds)]
        if fails:
            raise fails

    waits = WaitsUnderWay(charge, clock=lambda: now)
    waits.notice(machine([(7, NOW - 1)]), np.full(1, NOW, dtype=np.uint64))
    for _ in range(3000):
        waits.follow()
        now += 0.01
    gaps = [later - earlier for earlier, later in pairwise(begun)][JUDGED_PASSES - 1 :]
    assert gaps == [pytest.approx(apart_seconds, abs=0.12)] * len(gaps)
    assert len(gaps) >= 5


NOW = 10**12
MS = 10**6


def machine(*rings: list[tuple[int, int]], runs: int = 7) -> NDArray[Any]:
    """State of CPUs with these last slices, each an identity and its end, while `runs` runs."""
    states = np.zeros(len(rings), dtype=STATE_RECORD)
    for cpu, ring in enumerate(rings):
        states[cpu]["since_ns"], states[cpu]["identity"], states[cpu]["head"] = ring[-1][1], runs, len(ring)
        for place, (identity, end_ns) in enumerate(ring):
            states[cpu]["ring"][place] = (end_ns, identity)
    return states


BUSY = [(7, NOW - 4 * MS), (8, NOW - 2 * MS)]
IDLE_A_MOMENT_AGO = [(7, NOW - 4 * MS), (0, NOW - 2 * MS)]
IDLE_LONG_AGO = [(0, NOW - 900 * MS), (7, NOW - 2 * MS)]


@pytest.mark.parametrize(
    ("states", "passes"),
    [
        pytest.param(machine(BUSY), 1, id="busy"),
        pytest.param(machine(IDLE_LONG_AGO), 1, id="idle long ago"),
        pytest.param(machine(IDLE_A_MOMENT_AGO), 0, id="idle a moment ago"),
        pytest.param(machine(BUSY, runs=0), 0, id="idle"),
        pytest.param(machine(IDLE_A_MOMENT_AGO, BUSY), 1, id="one of two busy"),
        pytest.param(np.zeros(2, dtype=STATE_RECORD), 0, id="never switched"),
    ],
)
def test_no_pass_is_made_while_every_cpu_is_idle_at_times(states: NDArray[Any], passes: int) -> None:
    made: list[None] = []
    waits = WaitsUnderWay(lambda: made.append(None))
    waits.follow()
    assert not made
    waits.notice(states, np.full(len(states), NOW, dtype=np.uint64))
    waits.follow()
    assert len(made) == passes


SLICES_NS = [50 * MS, 50 * MS, 50 * MS, 3 * MS]


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        pytest.param([(0, 0)], [30 * MS, 50 * MS, 50 * MS, 3 * MS], id="nothing is known yet"),
        pytest.param([(60, 100)], [30 * MS, 50 * MS, 50 * MS, 3 * MS], id="slices lose time"),
        pytest.param([(100, 100)], SLICES_NS, id="slices lose none"),
        pytest.param([(60, 100), (160, 200)], SLICES_NS, id="they lose none any more"),
        pytest.param([(60, 100), (20, 30)], [30 * MS, 50 * MS, 50 * MS, 3 * MS], id="cgroups go"),
        pytest.param([(60, 100), (20, 30), (120, 130)], SLICES_NS, id="none any more after cgroups went"),
    ],
)
def test_long_slices_that_still_run_count_as_the_scheduler_counts(
    tmp_path: Path, ended: list[tuple[int, int]], found: list[int]
) -> None:
    """Threads 1 to 4 run: the second has a count beyond its slice, the third has exited, the fourth has just begun."""
    states = np.zeros(4, dtype=STATE_RECORD)
    states["pid"], states["sum_exec_ns"] = [1, 2, 3, 4], 7000 * MS
    for thread, counted in ((1, 7030), (2, 7060), (4, 7001)):
        (tmp_path / str(thread)).mkdir()
        (tmp_path / str(thread) / "schedstat").write_text(f"{counted * MS} 5 1\n")
    running = RunningSlices(tmp_path)
    for oncpu_ns, held_ns in ended:
        running.notice(oncpu_ns, held_ns)
    assert running.ran(states, np.array(SLICES_NS, dtype=np.uint64)).tolist() == found
