"""Tasks of this host, with the resource group that each was moved to.

A moved task takes the threads and children that it starts afterwards with it, as fork does in the kernel.
That is read off parents and start times (10 ms grain), since a FUSE server is not notified of a fork.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

Group = TypeVar("Group")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class TaskStat:
    """`parent` is the thread group's leader for a thread, the parent process for a leader."""

    tid: int
    parent: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class _Move(Generic[Group]):
    group: Group
    start_ticks: int
    moved_ticks: int


def _boot_ticks() -> int:
    # /proc counts start times from boot, suspend included.
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_SECOND)


class TaskTable(Generic[Group]):
    """Group membership by task id. Tasks that were never moved are in `default`."""

    def __init__(self, default: Group, proc: Path = Path("/proc")) -> None:
        self._default = default
        self._proc = proc
        self._moves: dict[int, _Move[Group]] = {}

    def stat(self, tid: int) -> TaskStat | None:
        """Return a task's parent and start, or None if there is no such task."""
        try:
            text = (self._proc / str(tid) / "stat").read_text()
            status = (self._proc / str(tid) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text[text.rindex(")") + 2 :].split()
        leader = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")))
        return TaskStat(tid, int(fields[1]) if leader == tid else leader, int(fields[19]))

    def move(self, tid: int, group: Group) -> bool:
        """Put a task into `group`; False if there is no such task."""
        self._note_inherited()
        stat = self.stat(tid)
        if stat is None:
            return False
        self._moves[tid] = _Move(group, stat.start_ticks, _boot_ticks())
        return True

    def move_all(self, origin: Group, target: Group) -> None:
        """Put every task of `origin` into `target`."""
        for tid, move in list(self._moves.items()):
            if move.group == origin:
                self._moves[tid] = _Move(target, move.start_ticks, move.moved_ticks)

    def group_of(self, tid: int) -> Group:
        stat = self.stat(tid)
        return self._resolve(stat) if stat else self._default

    def _resolve(self, stat: TaskStat) -> Group:
        born = stat.start_ticks
        current: TaskStat | None = stat
        while current is not None:
            move = self._moves.get(current.tid)
            is_same_task = move is not None and move.start_ticks == current.start_ticks
            if move and is_same_task and (current is stat or move.moved_ticks <= born):
                return move.group
            born = min(born, current.start_ticks)
            current = self.stat(current.parent) if current.parent else None
        return self._default

    def _note_inherited(self) -> dict[int, Group]:
        """Record what was inherited so far (a parent may move or exit); return each live task's group."""
        owners: dict[int, Group] = {}
        noted: dict[int, _Move[Group]] = {}
        for stat in self._all():
            owners[stat.tid] = group = self._resolve(stat)
            if group != self._default:
                noted[stat.tid] = self._moves.get(stat.tid) or _Move(group, stat.start_ticks, stat.start_ticks)
                if noted[stat.tid].start_ticks != stat.start_ticks:
                    noted[stat.tid] = _Move(group, stat.start_ticks, stat.start_ticks)
        kept = {tid: move for tid, move in self._moves.items() if tid in owners}
        self._moves = kept | noted
        return owners

    def tasks_of(self, group: Group) -> list[int]:
        """List task ids in ascending order."""
        return sorted(tid for tid, owner in self._note_inherited().items() if owner == group)

    def _all(self) -> Iterator[TaskStat]:
        for process in self._proc.iterdir():
            if not process.name.isdigit():
                continue
            try:
                threads = [int(thread.name) for thread in (process / "task").iterdir()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield from filter(None, map(self.stat, threads))
