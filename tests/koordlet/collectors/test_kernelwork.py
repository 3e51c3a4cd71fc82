"""CPU time of kernel threads by what they do."""

from pathlib import Path

import pytest

from api.metrics import KERNEL_WORK
from api.plugin import Unsupported
from koordlet.collectors import Round
from koordlet.collectors.kernelwork import LIST_EVERY_TICKS, KernelWork, parse_thread, work_of
from tests.koordlet.collectors.hosts import make_host
from tests.trees import make_tree

CHILDREN = "proc/2/task/2/children"


def stat(pid: int, name: str, ticks: int) -> str:
    return f"{pid} ({name}) S 2 0 0 0 -1 69238880 0 0 0 0 7 {ticks} 0 0 20 0 1 0 24 0 0\n"


def used(collector: KernelWork) -> dict[str, int]:
    """Milliseconds of those that did anything."""
    columns = collector.collect(Round((), ())).tables["host"].columns
    assert list(columns) == [f"kernelwork.{work}_ns" for work in KERNEL_WORK]
    return {
        work: int(columns[f"kernelwork.{work}_ns"][0]) // 10**6
        for work in KERNEL_WORK
        if columns[f"kernelwork.{work}_ns"][0]
    }


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("kswapd0", "background_reclaim"),
        ("kcompactd1", "compaction"),
        ("ksoftirqd/17", "soft_interrupts"),
        ("irq/25-ACPI:Ged", "interrupt_threads"),
        ("napi/eth0-8193", "network"),
        ("jbd2/vda1-8", "journals"),
        ("vhost-4242", "virtual_machines"),
        ("rcu_preempt", "rcu"),
        ("kworker/u8:2-writeback", "writeback"),
        ("kworker/u8:2+flush-254:0", "writeback"),
        ("kworker/0:1H-kblockd", "block_devices"),
        ("kworker/u8:3-ext4-rsv-conversion", "journals"),
        ("kworker/1:2", "other"),
        ("kauditd", "other"),
    ],
)
def test_what_a_thread_does_follows_from_its_name(name: str, work: str) -> None:
    assert work_of(name) == work
    assert parse_thread(stat(9, name, 12).encode()) == (name, 12)


def test_what_was_used_since_a_thread_was_first_seen_counts_by_its_present_work(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "proc/2/comm": "kthreadd\n",
            CHILDREN: "30 31 32",
            "proc/30/stat": stat(30, "kswapd0", 500),
            "proc/31/stat": stat(31, "kworker/u8:2-events", 100),
            "proc/32/stat": stat(32, "migration/0", 100),
        },
    )
    collector = KernelWork.open(make_host(tmp_path, 2))
    assert used(collector) == {}
    (tmp_path / "proc/30/stat").write_text(stat(30, "kswapd0", 540))
    (tmp_path / "proc/31/stat").write_text(stat(31, "kworker/u8:2+writeback", 103))
    (tmp_path / "proc/32/stat").write_text(stat(32, "migration/0", 900))
    assert used(collector) == {"background_reclaim": 400, "writeback": 30}
    collector.close()


def test_threads_that_end_keep_their_time_and_new_ones_are_found_in_time(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {"proc/2/comm": "kthreadd\n", CHILDREN: "30 77", "proc/30/stat": stat(30, "jbd2/vda1-8", 1)},
    )
    collector = KernelWork.open(make_host(tmp_path, 2))
    used(collector)
    (tmp_path / "proc/30/stat").write_text(stat(30, "jbd2/vda1-8", 21))
    assert used(collector) == {"journals": 200}
    (tmp_path / "proc/30/stat").write_text("")
    make_tree(tmp_path, {CHILDREN: "31", "proc/31/stat": stat(31, "vhost-7", 5)})
    for _ in range(LIST_EVERY_TICKS):
        assert used(collector) == {"journals": 200}
    (tmp_path / "proc/31/stat").write_text(stat(31, "vhost-7", 10))
    assert used(collector) == {"journals": 200, "virtual_machines": 50}
    collector.close()


def test_a_container_without_the_hosts_processes_says_so(tmp_path: Path) -> None:
    make_tree(tmp_path, {"proc/2/comm": "bash\n"})
    with pytest.raises(Unsupported, match="kernel's threads are not in /proc"):
        KernelWork.open(make_host(tmp_path, 2))
