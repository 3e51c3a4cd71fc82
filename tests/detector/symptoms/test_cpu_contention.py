"""CpuContention: the loss of one tick."""

import pytest

from detector.symptoms.cpu_contention import CpuContention
from tests.detector.symptoms.ticks import MS, lost, tick

WAITS = {
    "cpu.wait_neighbour_ns": 60 * MS,
    "cpu.wait_kernel_ns": 20 * MS,
    "cpu.wait_self_ns": 10 * MS,
    "cpu.wait_idle_ns": 10 * MS,
}


def test_waits_behind_neighbours_and_the_kernel_count() -> None:
    grown = {"cpu.wait_neighbour_ns": 300 * MS, "cpu.wait_kernel_ns": 20 * MS}
    assert lost(CpuContention(), grown) == pytest.approx(0.32)


def test_a_wait_of_unknown_cause_is_no_loss_but_part_of_the_whole_that_culprits_share() -> None:
    symptom = CpuContention()
    signal = symptom.sense(tick(symptom, {**WAITS, "cpu.wait_unknown_ns": 400 * MS}))
    assert signal is not None
    assert signal.whole is not None
    assert signal.lost[0] == pytest.approx(0.08)
    assert signal.whole[0] == pytest.approx(0.08 + 0.8 * 0.4)


def test_a_wait_of_which_no_cause_is_known_is_not_the_neighbours() -> None:
    """Without BTF, all of a cgroup's wait is of unknown cause while a quota can hold it back."""
    assert lost(CpuContention(), {**dict.fromkeys(WAITS, 0.0), "cpu.wait_unknown_ns": 600 * MS}) == 0.0
