"""Originals that systemd sets back, and which are set again.

When one property of a unit's controller changes, systemd writes every file of that controller with the values that it
knows of. The kubelet with its systemd driver tells it the weight of the QoS slices each minute and with each pod that
starts; so their cpu.max is set back as often. `systemctl daemon-reload` does the same to every unit.

The kernel does not tell which program wrote: an original that is back is taken for systemd's doing where systemd writes
such a file at all, and as long as it is not back oftener than systemd has reason to.
"""

import os
from collections import Counter, deque
from collections.abc import Iterable

from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_entry
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.originals.rollback import Ownership, RollbackResult, inspect
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile

REASON = "systemd set the original back"
MOST_TIMES = 120
"""Times in `WINDOW_SECONDS` that a file is set again. systemd writes it with each pod that starts and once a minute: a
node that is filled at once with the kubelet's 110 pods stays below; a program that writes each second does not."""
WINDOW_SECONDS = 300.0
CONTESTED = (
    f"the original came back more than {MOST_TIMES} times in {WINDOW_SECONDS:.0f} s: another program insists on it"
)
_UNITS = (".slice", ".scope", ".service")
"""Endings of the names of systemd's cgroups; those below them that are no units it does not write."""
_WRITTEN_BY_SYSTEMD = frozenset(
    {
        "cpu.weight",
        "cpu.idle",
        "cpu.max",
        "cpu.shares",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpuset.cpus",
        "cpuset.mems",
        "io.weight",
        "io.bfq.weight",
        "io.max",
        "io.latency",
        "blkio.weight",
        "blkio.bfq.weight",
        "blkio.weight_device",
        "blkio.throttle.read_bps_device",
        "blkio.throttle.write_bps_device",
        "memory.min",
        "memory.low",
        "memory.high",
        "memory.max",
        "memory.swap.max",
        "memory.zswap.max",
        "memory.oom.group",
        "memory.limit_in_bytes",
        "pids.max",
    }
)
"""Files that `cgroup_context_apply` of systemd's src/core/cgroup.c writes, the cpuset ones on v2 only. It writes
cgroup.freeze when a unit is frozen or thawed, which is a decision."""


def is_set_back(entry: JournalEntry, ownership: Ownership) -> bool:
    """Return whether a file of a unit has its original again in place of another value of ours."""
    return ownership is Ownership.ORIGINAL and entry.ours[-1] != entry.original and _may_be_set_back(entry)


def _may_be_set_back(entry: JournalEntry) -> bool:
    attribute = entry.attribute
    if not isinstance(attribute, KernelFile) or not attribute.is_cgroup or entry.by_kernel:
        return False
    directory, name = os.path.split(attribute.path)
    return name in _WRITTEN_BY_SYSTEMD and directory.endswith(_UNITS)


def found_set_back(entries: Iterable[JournalEntry], writer: Writer) -> list[tuple[JournalEntry, str]]:
    """Return the entries that were set back, each with the text found; what cannot be read is left out."""
    found = []
    for entry in filter(_may_be_set_back, entries):
        try:
            ownership, text = inspect(entry, writer)
        except OSError:
            continue
        if is_set_back(entry, ownership):
            found.append((entry, text))
    return found


def set_again(entry: JournalEntry, text: str, writer: Writer) -> EnforcerEvent:
    """Write our value where `text` was found; return the event, of a refusal too."""
    try:
        writer.write(entry.attribute, entry.ours[-1], {entry.original, *entry.ours}, entry.identity)
    except OSError as error:
        return of_entry(entry, Outcome.FAILED, f"{REASON}; {error}", before=text)
    return of_entry(entry, Outcome.SET_AGAIN, REASON, before=text)


class SetAgainTimes:
    """When each file was set again, in the newest `WINDOW_SECONDS`. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()

    def note(self, key: str, now: float) -> None:
        """Note that the attribute of this key was set again."""
        self._times.append((now, key))
        self._counts[key] += 1

    def is_contested(self, key: str, now: float) -> bool:
        """Return whether it was so often that it counts as another program's decision."""
        while self._times and self._times[0][0] <= now - WINDOW_SECONDS:
            _, old = self._times.popleft()
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]
        return self._counts[key] >= MOST_TIMES

    def contested(self, found: Iterable[tuple[JournalEntry, str]], now: float) -> list[RollbackResult]:
        """Return those of what was found set back that stay as they are, as foreign writes."""
        return [
            RollbackResult(entry, Outcome.FOREIGN_WRITE, text, CONTESTED)
            for entry, text in found
            if self.is_contested(entry.attribute.key, now)
        ]
