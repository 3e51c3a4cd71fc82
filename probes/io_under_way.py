"""Block IO that has not ended, counted while it grows: the part beyond its first second.

The BPF program sums at most `LONG_NS` of an IO when it ends. Each read adds what the IOs outstanding since longer have
waited more since the last read, so that a disk which hangs for ten seconds costs each IO a second a second, and nothing
when it goes on. What an IO waits between the last read and its end is not counted.

An IO whose end went unseen would count for ever, and as ahead of all that come after it: `UnderWay.unseen_ends` finds
it by the kernel's own number of IOs in flight on the disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID

LONG_NS = 1_000_000_000
LONGEST_UNSEEN_NS = 120 * LONG_NS
"""An IO that others have overtaken for longer has ended unseen; the block layer's own timeout, after which an IO is
taken back, is 30 s."""
STALE_SECONDS = 30
SYSFS_DISKS = Path("/sys/dev/block")
MINOR_BITS = 20


@dataclass(slots=True)
class Row:
    """Nanoseconds of one cgroup on one disk, all since the start."""

    excess_ns: int = 0
    self_ns: int = 0
    stalled_ns: int = 0


@dataclass(frozen=True, slots=True)
class UnseenEnds:
    """IOs whose end went unseen."""

    rows: NDArray[np.bool_]
    """Whether an IO is one, by row."""
    dead: NDArray[np.bool_]
    """Those of which no event can come any more, by row."""
    disks: list[int]
    """Disks whose counts hold one that was not known yet."""


class UnderWay:
    """Cumulative times of long IOs by cgroup and disk."""

    def __init__(self, disks: Path = SYSFS_DISKS) -> None:
        self._disks = disks
        self._last_ns = 0
        self._idle_ns: dict[int, int] = {}
        """By disk: what came before has ended."""
        self.rows: dict[tuple[int, int], Row] = {}

    def unseen_ends(self, now_ns: int, ios: NDArray[Any], disks: dict[int, Any]) -> UnseenEnds:
        """Find the IOs that are late though their disk had nothing in flight since they came, or has ended others
        `LONGEST_UNSEEN_NS` later.

        One may wait for a request while nothing is in flight (blk-iocost): that is no late IO either, but ends later.
        `ios` are `IO_RECORD`s, `disks` has the `DISK_RECORD` of each disk that serves requests, by its number; the
        clock is the monotonic one, as in the records.
        """
        queued_ns, late = ios["queued_ns"].astype(np.int64), _are_late(ios, now_ns)
        rows, found = np.zeros(len(ios), dtype=np.bool_), []
        for number in np.unique(ios["disk"][late]).tolist():
            if number not in disks:
                continue
            here, known_ns = late & (ios["disk"] == number), self._idle_ns.get(number, 0)
            idle_ns = int(disks[number]["ended_ns"]) - LONGEST_UNSEEN_NS if self._serves(number) else now_ns - LONG_NS
            self._idle_ns[number] = idle_ns = max(idle_ns, known_ns)
            here &= queued_ns < idle_ns
            rows |= here
            if (here & (queued_ns >= known_ns)).any():
                found.append(number)
        return UnseenEnds(rows, rows & (queued_ns + LONGEST_UNSEEN_NS < now_ns), found)

    def update(self, now_ns: int, ios: NDArray[Any], disks: dict[int, Any]) -> list[tuple[int, int, int]]:
        """Add what the IOs waited since the last call; returns victim, culprit and nanoseconds of each share of others.

        Takes what `unseen_ends` takes, without the IOs that this finds.
        """
        since_ns, self._last_ns = self._last_ns, now_ns
        late = ios[_are_late(ios, now_ns) & np.isin(ios["disk"], list(disks))]
        blamed: list[tuple[int, int, int]] = []
        for io, begun_ns, waited_ns in _alike(late, since_ns, now_ns):
            blamed += self._add(io, disks[int(io["disk"])], waited_ns, begun_ns, now_ns)
        return blamed

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Drop the rows of cgroups that are gone."""
        gone = set(ids.tolist())
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in gone}

    def _add(
        self, io: Any, disk: Any, waited_ns: NDArray[np.int64], begun_ns: NDArray[np.int64], now_ns: int
    ) -> list[tuple[int, int, int]]:
        """Add IOs that found the same ahead of them: one of them, and the times of each."""
        victim = int(io["cgroup"])
        row = self.rows.setdefault((victim, int(io["disk"])), Row())
        whole_ns, silent_ns = int(waited_ns.sum()), int(max(disk["ended_ns"], disk["since_ns"])) + LONG_NS
        row.excess_ns += whole_ns
        row.stalled_ns += int(np.clip(begun_ns + waited_ns - np.maximum(begun_ns, silent_ns), 0, None).sum())
        weights = weights_ahead(io, disk, now_ns)
        shares = [(victim, culprit, whole_ns * weight // sum(weights.values())) for culprit, weight in weights.items()]
        others = [share for share in shares if share[1] != victim]
        row.self_ns += whole_ns - sum(amount for _, _, amount in others)
        return others

    def gone(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the kernel has no such disk any longer, by row; none where it lists no disks at all."""
        if not self._disks.is_dir():
            return np.zeros(len(numbers), dtype=np.bool_)
        return np.array([not self._device(number).exists() for number in numbers.tolist()], dtype=np.bool_)

    def _device(self, number: int) -> Path:
        return self._disks / f"{number >> MINOR_BITS}:{number & (1 << MINOR_BITS) - 1}"

    def _serves(self, number: int) -> bool:
        """Whether the kernel has IOs in flight on the disk; taken as true where it does not say."""
        try:
            return any(int(word) for word in (self._device(number) / "inflight").read_text().split())
        except (OSError, ValueError):
            return True


def _are_late(ios: NDArray[Any], now_ns: int) -> NDArray[np.bool_]:
    queued_ns = ios["queued_ns"].astype(np.int64)
    late: NDArray[np.bool_] = (queued_ns != 0) & (queued_ns + LONG_NS < now_ns)
    return late


def _alike(
    late: NDArray[Any], since_ns: int, now_ns: int
) -> Iterator[tuple[Any, NDArray[np.int64], NDArray[np.int64]]]:
    """IOs by what decides their shares, with the begin and length of the part of each that counts now.

    A disk that hangs holds as many as its queue is long, and few of these differ.
    """
    if not len(late):
        return
    queued_ns = late["queued_ns"].astype(np.int64)
    begun_ns = np.maximum(since_ns, queued_ns + LONG_NS)
    waited_ns = now_ns - begun_ns
    ahead = ("ahead", late.dtype["ahead"])
    kinds = np.zeros(len(late), dtype=[("cgroup", np.uint64), ("disk", np.uint64), ("second", np.uint64), ahead])
    kinds["cgroup"], kinds["disk"], kinds["ahead"] = late["cgroup"], late["disk"], late["ahead"]
    # Seats that were taken over since lie between two of the times at which IOs came.
    kinds["second"] = late["queued_ns"] // np.uint64(LONG_NS)
    _, first, place = np.unique(kinds.view(f"V{kinds.dtype.itemsize}").ravel(), return_index=True, return_inverse=True)
    for number, each in enumerate(first.tolist()):
        members = place == number
        if waited_ns[members].any():
            yield late[each], begun_ns[members], waited_ns[members]


def weights_ahead(io: Any, disk: Any, now_ns: int) -> dict[int, int]:
    """IOs by cgroup that were ahead of an IO when it came, and those outstanding now, itself not counted.

    As `share_out` of probes/c/io_times.h: seats that another cgroup took since are `OTHER_ID`'s. None where the disk
    was idle before and has ended nothing since: it stalls by itself.
    """
    if disk["busy_ns"] > disk["ended_ns"]:
        return {}
    fresh = now_ns // 1_000_000_000 - disk["moved_s"].astype(np.int64) < STALE_SECONDS
    counts = io["ahead"].astype(np.int64) + np.where(fresh, np.maximum(disk["outstanding"], 0), 0)
    owners = np.append(np.where(disk["owner_ns"] <= io["queued_ns"], disk["cgroups"], np.uint64(OTHER_ID)), OTHER_ID)
    weights: dict[int, int] = {}
    for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
        if count:
            weights[owner] = weights.get(owner, 0) + count
    mine = int(io["cgroup"])
    if mine in weights:
        weights[mine] -= 1
    return {owner: count for owner, count in weights.items() if count}
