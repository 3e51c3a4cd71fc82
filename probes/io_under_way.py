"""Block IO that has not ended, counted while it grows: the part beyond its first second.

The BPF program sums at most `LONG_NS` of an IO when it ends. Each read adds what the IOs outstanding since longer have
waited more since the last read, so that a disk which hangs for ten seconds costs each IO a second a second, and nothing
when it goes on. What an IO waits between the last read and its end is not counted.

An IO whose end went unseen would count for ever: the kernel's own number of IOs in flight on the disk tells.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID

LONG_NS = 1_000_000_000
STALE_SECONDS = 30
SYSFS_DISKS = Path("/sys/dev/block")
MINOR_BITS = 20


@dataclass(slots=True)
class Row:
    """Nanoseconds of one cgroup on one disk, all since the start."""

    excess_ns: int = 0
    self_ns: int = 0
    stalled_ns: int = 0


class UnderWay:
    """Cumulative times of long IOs by cgroup and disk."""

    def __init__(self, disks: Path = SYSFS_DISKS) -> None:
        self._disks = disks
        self._last_ns = 0
        self.rows: dict[tuple[int, int], Row] = {}

    def update(self, now_ns: int, ios: NDArray[Any], disks: dict[int, Any]) -> list[tuple[int, int, int]]:
        """Add what the IOs waited since the last call; returns victim, culprit and nanoseconds of each share of others.

        `ios` are `IO_RECORD`s, `disks` has the `DISK_RECORD` of each disk that serves requests, by its number; the
        clock is the monotonic one, as in the records.
        """
        since_ns, self._last_ns = self._last_ns, now_ns
        late = ios[(ios["queued_ns"] != 0) & (ios["queued_ns"].astype(np.int64) + LONG_NS < now_ns)]
        blamed: list[tuple[int, int, int]] = []
        if not len(late):
            return blamed
        serving = {number for number in np.unique(late["disk"]).tolist() if number in disks and self._serves(number)}
        for io in late:
            number = int(io["disk"])
            if number in serving:
                begun_ns = max(since_ns, int(io["queued_ns"]) + LONG_NS)
                blamed += self._add(io, disks[number], now_ns - begun_ns, begun_ns, now_ns)
        return blamed

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Drop the rows of cgroups that are gone."""
        gone = set(ids.tolist())
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in gone}

    def _add(self, io: Any, disk: Any, waited_ns: int, begun_ns: int, now_ns: int) -> list[tuple[int, int, int]]:
        victim = int(io["cgroup"])
        row = self.rows.setdefault((victim, int(io["disk"])), Row())
        row.excess_ns += waited_ns
        row.stalled_ns += max(0, now_ns - max(begun_ns, int(disk["ended_ns"]) + LONG_NS))
        weights = weights_ahead(io, disk, now_ns)
        shares = [(victim, culprit, waited_ns * weight // sum(weights.values())) for culprit, weight in weights.items()]
        others = [share for share in shares if share[1] != victim]
        row.self_ns += waited_ns - sum(amount for _, _, amount in others)
        return others

    def _serves(self, number: int) -> bool:
        """Whether the kernel has IOs in flight on the disk; taken as true where it does not say."""
        device = self._disks / f"{number >> MINOR_BITS}:{number & (1 << MINOR_BITS) - 1}"
        try:
            return any(int(word) for word in (device / "inflight").read_text().split())
        except (OSError, ValueError):
            return True


def weights_ahead(io: Any, disk: Any, now_ns: int) -> dict[int, int]:
    """IOs by cgroup that were ahead of an IO when it came, and those outstanding now, itself not counted.

    As `share_out` of probes/c/io_times.h: seats that another cgroup took since are `OTHER_ID`'s.
    """
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
