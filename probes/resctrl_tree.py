"""The resctrl file system below a root: its groups, their readings, and monitor groups of our own.

Follows Documentation/filesystems/resctrl.rst. A reading that is not a number ("Unavailable", "Error", "Unassigned")
is NaN, never 0. Files are opened anew for each read, as kernfs fixes a text when it is opened.
"""

import errno
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

EVENTS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
OWN_NAME = re.compile(r"koord-(\d+)")
_DOMAIN = re.compile(r"mon_L3_(\d+)")
_OUT_OF_MONITORS = (errno.ENOSPC, errno.EBUSY)
_GONE = (errno.ENOENT, errno.ENODEV)

Readings = Mapping[tuple[str, int], float]
"""(event, L3 domain) to bytes; NaN where the hardware or kernel gives no number."""


@dataclass(frozen=True, slots=True)
class MonitoredGroup:
    """One monitored directory: a control group, or a monitor group below one (`control` is "" for the root)."""

    control: str
    monitor: str = ""

    @property
    def name(self) -> str:
        """Path below the root; "/" for the root itself."""
        parts = [self.control, *(("mon_groups", self.monitor) if self.monitor else ())]
        return "/".join(part for part in parts if part) or "/"


class ResctrlTree:
    """Reads under `root`; only `make`, `add_tasks` and `remove` write, and only to groups named `koord-<id>`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, group: MonitoredGroup) -> Path:
        return self.root if group.name == "/" else self.root / group.name

    def monitor_count(self) -> int | None:
        """Monitor ids of the machine, the root's included; None where the L3 is not monitored."""
        try:
            return int((self.root / "info/L3_MON/num_rmids").read_text())
        except FileNotFoundError:
            return None

    def groups(self) -> list[MonitoredGroup]:
        """Return every group, the root first."""
        found = [MonitoredGroup(control) for control in ("", *self._controls())]
        for control in list(found):
            below = self._path(control) / "mon_groups"
            found += [MonitoredGroup(control.control, name) for name in _directories(below)]
        return found

    def _controls(self) -> list[str]:
        reserved = ("info", "mon_groups", "mon_data")
        return [name for name in _directories(self.root) if name not in reserved]

    def read(self, group: MonitoredGroup) -> Readings | None:
        """Return every event in every domain; None if the group is gone."""
        readings: dict[tuple[str, int], float] = {}
        data = self._path(group) / "mon_data"
        for name in _directories(data):
            match = _DOMAIN.fullmatch(name)
            if not match:
                continue
            for event in EVENTS:
                text = _text(data / name / event)
                if text is not None:
                    readings[event, int(match[1])] = float(text) if text.isdecimal() else math.nan
        return readings or None

    def tasks(self, group: MonitoredGroup) -> frozenset[int] | None:
        """Thread ids of a group (a control group's include those of its monitor groups); None if it is gone."""
        text = _text(self._path(group) / "tasks")
        return None if text is None else frozenset(map(int, text.split()))

    def claims(self) -> dict[str, frozenset[int]]:
        """The threads of each control group but the root's."""
        return {control: self.tasks(MonitoredGroup(control)) or frozenset() for control in self._controls()}

    def make(self, control: str, cgroup: int) -> MonitoredGroup | None:
        """Make the monitor group of a cgroup; None where no monitor id is free at present."""
        group = MonitoredGroup(control, f"koord-{cgroup}")
        try:
            self._path(group).mkdir()
        except FileExistsError:
            return group
        except OSError as error:
            if error.errno in _OUT_OF_MONITORS:
                return None
            raise
        return group

    def add_tasks(self, group: MonitoredGroup, tids: Iterable[int]) -> int:
        """Move threads into one of our groups, one write each; returns how many were refused (not: had exited)."""
        refused = 0
        for tid in tids:
            try:
                (self._path(group) / "tasks").write_text(f"{tid}\n")
            except OSError as error:
                refused += error.errno != errno.ESRCH
        return refused

    def remove(self, group: MonitoredGroup) -> None:
        """Remove one of our groups; its tasks go back to the parent. Raises ValueError for any other group."""
        if not OWN_NAME.fullmatch(group.monitor):
            raise ValueError(f"{group.name} is not a group of ours")
        try:
            self._path(group).rmdir()
        except OSError as error:
            if error.errno not in _GONE:
                raise

    def remove_own(self) -> None:
        """Remove every group of ours, an earlier run's included."""
        for group in self.groups():
            if OWN_NAME.fullmatch(group.monitor):
                self.remove(group)


def control_of(tids: frozenset[int], claims: Mapping[str, frozenset[int]]) -> str:
    """The control group that holds any of `tids`; "" (the root's) where none claims one."""
    return next((control for control, claimed in claims.items() if claimed & tids), "")


def _directories(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
