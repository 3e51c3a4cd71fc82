"""The cpu probe's part in user space; what the kernel side counts is in tests/kernel/test_cpu.py."""

import errno

from probes.cpu import PREPARE_EVERY_READS, TaskStorage
from probes.libbpf import BpfError


def passes(counts: list[int], *, fails: bool = False) -> int:
    """Passes over all threads while the probe reads these counts of waits without storage."""
    made: list[None] = []

    def prepare() -> None:
        made.append(None)
        if fails:
            raise BpfError("bpf_iter_create", errno.ENOMEM)

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
    assert passes(list(range(1, 2 * PREPARE_EVERY_READS + 1)), fails=True) == 2
