"""CPU time of the kernel's own threads, by what they do: the work behind the culprit `[kernel]`."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.frame import HOST, CgroupInfo, Reading, Table
from api.metrics import KERNEL_WORK
from api.plugin import Unsupported
from koordlet.collectors import Collector, Host, Round
from koordlet.host.files import OUT_OF_DESCRIPTORS, HostTree
from koordlet.host.process_files import TICK_NS

LIST_EVERY_TICKS = 10
MOST_THREADS = 512
"""Threads that are followed, the oldest first: those that each CPU has, and file systems' and devices' after them."""
OTHER = "other"
_KTHREADD = 2
_READ_BYTES = 1024
_SYSTEM_TIME = 12
"""Place of the field behind the name in /proc/PID/stat."""

_BY_NAME: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("background_reclaim", ("kswapd",)),
    ("compaction", ("kcompactd", "khugepaged")),
    ("soft_interrupts", ("ksoftirqd",)),
    ("interrupt_threads", ("irq/",)),
    ("network", ("napi/", "wg-crypt")),
    ("journals", ("jbd2/", "xfsaild/", "btrfs-", "txg_", "z_")),
    ("block_devices", ("loop", "nvme", "md", "dm-", "dmcrypt", "kcryptd", "dio/")),
    ("virtual_machines", ("vhost-", "kvm-")),
    ("rcu", ("rcu",)),
)
"""First parts of threads' names by what these do."""
_BY_WORK: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("writeback", ("writeback", "flush")),
    ("journals", ("ext4", "xfs", "btrfs")),
    ("block_devices", ("kblockd", "kcryptd", "nvme", "dm", "md", "loop", "dio", "kthrotld", "blkcg")),
    ("network", ("wg-", "netns", "mld", "ipv6", "napi", "inet")),
    ("rcu", ("rcu", "kvfree_rcu")),
)
"""First parts of the names of queues that workers (`kworker/CPU:NUMBER-QUEUE`) take work from."""
_AFTER_NUMBER = re.compile("[-+]")
"""A worker's queue follows a plus while it works, and a minus afterwards."""
_IDLE = ("cpuhp/", "migration/", "idle_inject/", "kworker/R-")
"""Threads that do nothing but at CPU hotplug, at a migration, or for want of memory: not followed."""


@dataclass(slots=True)
class _Thread:
    descriptor: int
    ticks: int


class KernelWork(Collector):
    """System time of kthreadd's children, at the kernel's 10 ms grain.

    A worker's time belongs to the queue whose work it does when it is read. Reading a thread takes some 5 us; a host
    with 256 CPUs has a few thousand, so not all of these are followed.
    """

    def __init__(self, tree: HostTree) -> None:
        self._tree = tree
        self._threads: dict[int, _Thread] = {}
        self._ns = dict.fromkeys(KERNEL_WORK, 0)
        self._rounds = 0

    @classmethod
    def open(cls, host: Host) -> "KernelWork":
        """Raises Unsupported where the kernel's threads are not to be seen."""
        if not (host.tree.text(f"/proc/{_KTHREADD}/comm") or "").startswith("kthreadd"):
            raise Unsupported("the kernel's threads are not in /proc", "share the host's PID namespace (hostPID)")
        if host.tree.text(_children_file()) is None:
            raise Unsupported("the kernel does not list a thread's children (CONFIG_PROC_CHILDREN)")
        return cls(host.tree)

    def collect(self, work: Round) -> Reading:  # noqa: ARG002 - the host is one row, always due
        if self._rounds % LIST_EVERY_TICKS == 0:
            self._find()
        self._rounds += 1
        for pid in list(self._threads):
            self._read(pid)
        columns = {f"kernelwork.{what}_ns": np.array([ns], dtype=np.uint64) for what, ns in self._ns.items()}
        return Reading({HOST: Table({}, columns)})

    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        """Keeps nothing for cgroups."""

    def close(self) -> None:
        for pid in list(self._threads):
            self._drop(pid)

    def _find(self) -> None:
        for word in (self._tree.text(_children_file()) or "").split():
            pid = int(word)
            if len(self._threads) >= MOST_THREADS:
                return
            if pid not in self._threads:
                self._follow(pid)

    def _follow(self, pid: int) -> None:
        """Count from now on what the thread does; one that is gone already or finds no descriptor is left out."""
        try:
            descriptor = os.open(self._tree.path(f"/proc/{pid}/stat"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        self._threads[pid] = _Thread(descriptor, -1)
        self._read(pid)

    def _read(self, pid: int) -> None:
        thread = self._threads[pid]
        try:
            name, ticks = parse_thread(os.pread(thread.descriptor, _READ_BYTES, 0))
        except (OSError, ValueError, IndexError) as error:
            if not (isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS):
                self._drop(pid)
            return
        if thread.ticks < 0 and name.startswith(_IDLE):
            self._drop(pid)
            return
        if 0 <= thread.ticks < ticks:
            self._ns[work_of(name)] += (ticks - thread.ticks) * TICK_NS
        thread.ticks = ticks

    def _drop(self, pid: int) -> None:
        os.close(self._threads.pop(pid).descriptor)


def parse_thread(content: bytes) -> tuple[str, int]:
    """Name and system time, in ticks of the kernel's clock for users, of a /proc/PID/stat.

    Raises ValueError or IndexError for content of another shape, as of a thread that has ended.
    """
    before, found, behind = content.rpartition(b") ")
    if not found:
        raise ValueError("no name in brackets")
    return before.partition(b"(")[2].decode(errors="replace"), int(behind.split()[_SYSTEM_TIME])


def work_of(name: str) -> str:
    """Return what a kernel thread of this name does, one of `api.metrics.KERNEL_WORK`."""
    if name.startswith("kworker/"):
        return _first(_BY_WORK, _AFTER_NUMBER.split(name, maxsplit=1)[-1])
    return _first(_BY_NAME, name)


def _first(table: tuple[tuple[str, tuple[str, ...]], ...], name: str) -> str:
    return next((what for what, beginnings in table if name.startswith(beginnings)), OTHER)


def _children_file() -> str:
    return f"/proc/{_KTHREADD}/task/{_KTHREADD}/children"
