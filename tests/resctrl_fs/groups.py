"""Resource groups: control groups under the root, monitor groups under each, and what each of them owns."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.resctrl_fs.command import CommandError
from tests.resctrl_fs.counters import Counters
from tests.resctrl_fs.hardware import Machine
from tests.resctrl_fs.identifiers import ClosidPool, RmidPool
from tests.resctrl_fs.schemata import ControlTable, Mode
from tests.resctrl_fs.tasks import TaskTable

MOUNT_OPTIONS = frozenset({"cdp", "cdpl2", "mba_MBps", "debug"})


@dataclass(slots=True, eq=False)
class Group:
    """A directory. `parent` is None for a control group, the control group for a monitor group."""

    name: str
    closid: int
    rmid: int
    parent: "Group | None" = None
    cpus: int = 0
    mode: Mode = "shareable"
    mbps_event: str = "mbm_total_bytes"
    monitors: dict[str, "Group"] = field(default_factory=dict)

    @property
    def rmids(self) -> list[int]:
        """The RMIDs that a read of mon_data sums."""
        return [self.rmid, *(monitor.rmid for monitor in self.monitors.values())]


class GroupTable:
    """All groups of a mount, and the commands on them."""

    def __init__(self, machine: Machine, options: frozenset[str], counters: Counters) -> None:
        _check_options(machine, options)
        self.machine = machine
        self.options = options
        self.counters = counters
        self.default = Group("", 0, 0, cpus=(1 << machine.num_cpus) - 1)
        self.controls: dict[str, Group] = {}
        self.table = ControlTable(machine, options, self._mode_of)
        self.tasks: TaskTable[Group] = TaskTable(self.default)
        self.threshold_bytes = self._default_threshold_bytes()
        self._closids = ClosidPool(self.table.num_closids)
        num_rmids = machine.monitoring.num_rmids if machine.monitoring else 1
        self._rmids = RmidPool(num_rmids, lambda rmid: counters.occupancy_bytes(rmid) > self.threshold_bytes)

    def _default_threshold_bytes(self) -> int:
        monitoring, l3 = self.machine.monitoring, self.machine.l3
        if not monitoring or not l3:
            return 0
        share = l3.size_bytes // monitoring.num_rmids
        return share // monitoring.upscale_bytes * monitoring.upscale_bytes

    def _mode_of(self, closid: int) -> Mode | None:
        return next((group.mode for group in self.control_groups() if group.closid == closid), None)

    def control_groups(self) -> Iterator[Group]:
        yield self.default
        yield from self.controls.values()

    def all_groups(self) -> Iterator[Group]:
        for group in self.control_groups():
            yield group
            yield from group.monitors.values()

    def make_control(self, name: str) -> Group:
        """Make a control group: a CLOSID first, then an RMID, then room in the caches."""
        closid = self._closids.take()
        try:
            group = Group(name, closid, self._take_rmid())
        except CommandError:
            self._closids.give_back(closid)
            raise
        try:
            self.table.init_group(closid)
        except CommandError:
            self._rmids.give_back(group.rmid)
            self._closids.give_back(closid)
            raise
        self.controls[name] = group
        return group

    def make_monitor(self, parent: Group, name: str) -> Group:
        parent.monitors[name] = group = Group(name, parent.closid, self._take_rmid(), parent)
        return group

    def _take_rmid(self) -> int:
        if not self.machine.monitoring:
            return 0
        rmid = self._rmids.take()
        self.counters.clear(rmid)
        return rmid

    def _free_rmid(self, rmid: int) -> None:
        if self.machine.monitoring:
            self._rmids.give_back(rmid)

    def remove(self, group: Group) -> None:
        """Remove a group; what it owned goes to the parent (or the default group)."""
        if group.parent:
            self._remove_monitor(group, group.parent)
        else:
            for monitor in list(group.monitors.values()):
                self._remove_monitor(monitor, group)
            self.tasks.move_all(group, self.default)
            self.default.cpus |= group.cpus
            del self.controls[group.name]
            self._free_rmid(group.rmid)
            self._closids.give_back(group.closid)

    def _remove_monitor(self, group: Group, parent: Group) -> None:
        self.tasks.move_all(group, parent)
        del parent.monitors[group.name]
        self._free_rmid(group.rmid)

    @staticmethod
    def rename_monitor(group: Group, parent: Group, name: str) -> None:
        """Rename a monitor group, or move one that owns no CPUs to another control group."""
        assert group.parent is not None
        if group.cpus and parent is not group.parent:
            raise CommandError(errno.EPERM, "Cannot move a MON group that monitors CPUs")
        del group.parent.monitors[group.name]
        parent.monitors[name] = group
        group.name, group.parent, group.closid = name, parent, parent.closid

    def set_mode(self, group: Group, mode: str) -> None:
        if mode == group.mode:
            return
        if mode == "exclusive":
            self.table.check_exclusive(group.closid)
            group.mode = "exclusive"
        elif mode == "shareable":
            group.mode = "shareable"
        else:
            raise CommandError(errno.EINVAL, "Unknown or unsupported mode")

    def move_task(self, tid: int, group: Group) -> None:
        """Move a task; into a monitor group only from its own control group."""
        if group.parent is not None:
            owner = self.tasks.group_of(tid)
            if self.tasks.stat(tid) and (owner.parent or owner) is not group.parent:
                raise CommandError(errno.EINVAL, "Can't move task to different control group")
        if not self.tasks.move(tid, group):
            raise CommandError(errno.ESRCH, f"No task {tid}")

    def tasks_of(self, group: Group) -> list[int]:
        """List a group's tasks. A control group's list includes those of its monitor groups.

        Without allocation no task has a CLOSID to match, and a control group's list is empty.
        """
        if group.parent is None and not self.table.schemas:
            return []
        owners = {group, *group.monitors.values()}
        return sorted(tid for owner in owners for tid in self.tasks.tasks_of(owner))

    def set_cpus(self, group: Group, cpus: int) -> None:
        if cpus >> self.machine.num_cpus:
            raise CommandError(errno.EINVAL, "Can only assign online CPUs")
        if group.parent:
            self._set_monitor_cpus(group, group.parent, cpus)
        else:
            self._set_control_cpus(group, cpus)

    @staticmethod
    def _set_monitor_cpus(group: Group, parent: Group, cpus: int) -> None:
        if cpus & ~parent.cpus:
            raise CommandError(errno.EINVAL, "Can only add CPUs to mongroup that belong to parent")
        for sibling in parent.monitors.values():
            sibling.cpus &= ~cpus
        group.cpus = cpus

    def _set_control_cpus(self, group: Group, cpus: int) -> None:
        dropped = group.cpus & ~cpus
        if dropped and group is self.default:
            raise CommandError(errno.EINVAL, "Can't drop CPUs from default group")
        self.default.cpus |= dropped
        for other in self.control_groups():
            if other is not group:
                other.cpus &= ~cpus
                for monitor in other.monitors.values():
                    monitor.cpus &= other.cpus
        group.cpus = cpus
        for monitor in group.monitors.values():
            monitor.cpus = 0


def _check_options(machine: Machine, options: frozenset[str]) -> None:
    """Refuse what mount(2) refuses, with EINVAL."""
    if options - MOUNT_OPTIONS:
        raise CommandError(errno.EINVAL, f"Unknown parameter '{min(options - MOUNT_OPTIONS)}'")
    for option, cache in (("cdp", machine.l3), ("cdpl2", machine.l2)):
        if option in options and not (cache and cache.is_cdp_capable):
            raise CommandError(errno.EINVAL, f"{option} is not supported")
    if "mba_MBps" in options:
        has_mbm = machine.monitoring is not None and bool(machine.monitoring.mbm_events)
        if not (has_mbm and machine.bandwidth and machine.bandwidth.is_linear):
            raise CommandError(errno.EINVAL, "mba_MBps requires MBM and linear scale MBA at L3 scope")
