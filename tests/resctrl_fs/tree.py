"""Tree of the file system: the files of each directory, and the commands behind mkdir, rmdir and writes."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.resctrl_fs import cpumask
from tests.resctrl_fs.command import CommandError
from tests.resctrl_fs.counters import Counters
from tests.resctrl_fs.groups import Group, GroupTable
from tests.resctrl_fs.hardware import Machine
from tests.resctrl_fs.info import InfoTree
from tests.resctrl_fs.nodes import Directory, File, Node

PAGE_BYTES = 4096


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class ResctrlTree:
    """One mount. Methods take paths from the mount point ("/info/L3/cbm_mask") and raise OSError."""

    def __init__(self, machine: Machine, options: frozenset[str] = frozenset()) -> None:
        self.counters = Counters()
        try:
            self.groups = GroupTable(machine, options, self.counters)
        except CommandError as error:
            raise OSError(error.errno, error.message) from error
        self._status = ""
        self._info = InfoTree(self.groups, lambda: self._status or "ok\n")
        self._root = Directory(self._root_entries, "control", self.groups.default)

    def lookup(self, path: str) -> Node:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            if not isinstance(node, Directory):
                raise _os_error(errno.ENOTDIR)
            entries = node.entries()
            if name not in entries:
                raise _os_error(errno.ENOENT)
            node = entries[name]
        return node

    def group_at(self, path: str) -> Group:
        """Return the group whose directory `path` is; raises OSError(ENOENT) otherwise."""
        node = self.lookup(path)
        if isinstance(node, Directory) and node.group and node.role in ("control", "monitor"):
            return node.group
        raise _os_error(errno.ENOENT)

    def write(self, path: str, data: bytes, pid: int) -> None:
        """Run the command behind one write(2) of `data` to `path`."""
        node = self.lookup(path)
        if not isinstance(node, File) or node.write is None:
            raise _os_error(errno.EINVAL)
        if len(data) > PAGE_BYTES:
            raise _os_error(errno.E2BIG)
        text = data.decode("utf-8", "replace")
        if node.needs_newline and not text.endswith("\n"):
            raise _os_error(errno.EINVAL)
        with self._command(is_counted=node.is_command):
            node.write(text, pid)

    def mkdir(self, path: str) -> None:
        """Make a group; only the root and mon_groups directories take one."""
        parent_path, _, name = path.rpartition("/")
        parent = self.lookup(parent_path)
        if not isinstance(parent, Directory):
            raise _os_error(errno.ENOTDIR)
        if "\n" in name:
            raise _os_error(errno.EINVAL)
        if name in parent.entries():
            raise _os_error(errno.EEXIST)
        if parent is self._root and self.groups.table.schemas:
            with self._command():
                self.groups.make_control(name)
            return
        if not self.groups.machine.monitoring:
            raise _os_error(errno.EPERM)
        if parent.group is None:
            raise _os_error(errno.ENODEV)
        with self._command():
            if parent.role != "mon_groups" or name == "mon_groups":
                raise CommandError(errno.EPERM)
            self.groups.make_monitor(parent.group, name)

    def rmdir(self, path: str) -> None:
        node = self.lookup(path)
        if not isinstance(node, Directory):
            raise _os_error(errno.ENOTDIR)
        is_group = node.role in ("control", "monitor") and node.group is not self.groups.default
        if not is_group or node.group is None:
            raise _os_error(errno.EPERM)
        self.groups.remove(node.group)

    def rename(self, old: str, new: str) -> None:
        """Rename or move a monitor group; anything else is refused with EPERM."""
        source = self.lookup(old)
        parent_path, _, name = new.rpartition("/")
        target = self.lookup(parent_path)
        with self._command():
            if not isinstance(source, Directory) or source.role != "monitor" or source.group is None:
                raise CommandError(errno.EPERM, "Source must be a MON group")
            if not isinstance(target, Directory) or target.role != "mon_groups" or target.group is None:
                raise CommandError(errno.EPERM, "Destination must be a mon_groups subdirectory")
            if name in target.entries():
                raise CommandError(errno.EEXIST)
            self.groups.rename_monitor(source.group, target.group, name)

    @contextmanager
    def _command(self, *, is_counted: bool = True) -> Iterator[None]:
        """Keep info/last_cmd_status: cleared at the start of a command, filled by its failure."""
        if is_counted:
            self._status = ""
        try:
            yield
        except CommandError as error:
            if error.message is not None:
                self._status = f"{error.message}\n"
            raise _os_error(error.errno) from error

    def _root_entries(self) -> dict[str, Node]:
        entries: dict[str, Node] = {"info": Directory(self._info.entries)}
        entries |= self._control_entries(self.groups.default)
        for name, group in self.groups.controls.items():
            entries[name] = Directory(self._bound(self._control_entries, group), "control", group)
        return entries

    @staticmethod
    def _bound(entries: Callable[[Group], dict[str, Node]], group: Group) -> Callable[[], dict[str, Node]]:
        return lambda: entries(group)

    def _control_entries(self, group: Group) -> dict[str, Node]:
        entries = self._shared_entries(group)
        if self.groups.table.schemas:
            entries |= self._allocation_files(group)
        if self.groups.machine.monitoring:
            entries["mon_groups"] = Directory(self._bound(self._monitors, group), "mon_groups", group)
        return entries

    def _monitors(self, group: Group) -> dict[str, Node]:
        return {
            name: Directory(self._bound(self._shared_entries, monitor), "monitor", monitor)
            for name, monitor in group.monitors.items()
        }

    def _shared_entries(self, group: Group) -> dict[str, Node]:
        num_cpus = self.groups.machine.num_cpus
        entries: dict[str, Node] = {
            "tasks": File(
                lambda: "".join(f"{tid}\n" for tid in self.groups.tasks_of(group)),
                lambda text, pid: self._write_tasks(group, text, pid),
            ),
            "cpus": File(
                lambda: f"{cpumask.format_mask(group.cpus, num_cpus)}\n",
                lambda text, _pid: self.groups.set_cpus(group, cpumask.parse_mask(text)),
            ),
            "cpus_list": File(
                lambda: f"{cpumask.format_list(group.cpus)}\n",
                lambda text, _pid: self.groups.set_cpus(group, cpumask.parse_list(text)),
            ),
        }
        if self.groups.machine.monitoring:
            entries["mon_data"] = Directory(self._bound(self._mon_data, group), "fixed", group)
            if "debug" in self.groups.options:
                entries["mon_hw_id"] = File(lambda: f"{group.rmid}\n")
        return entries

    def _allocation_files(self, group: Group) -> dict[str, Node]:
        table = self.groups.table
        files: dict[str, Node] = {
            "schemata": File(
                lambda: table.schemata_text(group.closid),
                lambda text, _pid: table.write(group.closid, group.mode, text[:-1]),
                needs_newline=True,
            ),
            "size": File(lambda: table.size_text(group.closid)),
            "mode": File(
                lambda: f"{group.mode}\n",
                lambda text, _pid: self.groups.set_mode(group, text[:-1]),
                needs_newline=True,
            ),
        }
        if "debug" in self.groups.options:
            files["ctrl_hw_id"] = File(lambda: f"{group.closid}\n")
        if "mba_MBps" in self.groups.options:
            files["mba_MBps_event"] = File(
                lambda: f"{group.mbps_event}\n",
                lambda text, _pid: self._write_mbps_event(group, text[:-1]),
                needs_newline=True,
            )
        return files

    def _write_mbps_event(self, group: Group, event: str) -> None:
        monitoring = self.groups.machine.monitoring
        if monitoring is None or event not in monitoring.mbm_events:
            raise CommandError(errno.EINVAL, f"Unsupported event id '{event}'")
        group.mbps_event = event

    def _write_tasks(self, group: Group, text: str, pid: int) -> None:
        """Move the listed tasks, in order, up to the first that fails."""
        for word in text.removesuffix("\n").split(",") if text.strip() else ():
            tid_text = word.strip()
            if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)", tid_text):
                raise CommandError(errno.EINVAL, f"Task list parsing error pid {tid_text}")
            tid = int(tid_text, 16 if "x" in tid_text.lower() else 10)
            if tid < 0:
                raise CommandError(errno.EINVAL, f"Invalid pid {tid}")
            try:
                self.groups.move_task(tid or pid, group)
            except CommandError as error:
                raise CommandError(error.errno, f"{error.message}\nError while processing task {tid}") from error

    def _mon_data(self, group: Group) -> dict[str, Node]:
        monitoring = self.groups.machine.monitoring
        assert monitoring is not None
        return {
            f"mon_L3_{domain:02d}": Directory(
                lambda domain=domain: self._event_files(group, monitoring.events, domain),  # type: ignore[misc]
                "fixed",
                group,
            )
            for domain in monitoring.domains
        }

    def _event_files(self, group: Group, events: tuple[str, ...], domain: int) -> dict[str, Node]:
        return {
            event: File(lambda event=event: f"{self.counters.read_sum(group.rmids, event, domain)}\n")  # type: ignore[misc]
            for event in events
        }
