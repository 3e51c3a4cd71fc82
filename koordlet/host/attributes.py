"""Kernel attributes of one value each: a file or an item in it, a value of a cgroup's processes, a resource group, a
traffic class, a policer.

Attributes are plain data, so that a journal can name them and a later run can find them again. Field names on disk are
a format: `rename` keeps them. An attribute reads as the set of canonical texts found, since the processes of a cgroup
may differ; None means that it is gone.
"""

import errno
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from api.cgroup_path import raw_path
from koordlet.host import resctrl_groups
from koordlet.host.attribute_formats import (
    Format,
    Layout,
    absent_text,
    canonical,
    item_command,
    item_text,
    written_text,
)
from koordlet.host.cgroups import processes
from koordlet.host.cgroups.timed_write import write_within
from koordlet.host.files import HostError
from koordlet.host.traffic.cgroup_class import CgroupTraffic
from koordlet.host.traffic.policers import policer_of
from koordlet.host.traffic.qdisc import link_identity

_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
_READ_BYTES = 1 << 16
_LIMIT_V1, _SWAP_LIMIT_V1 = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
PRESENT, ABSENT = "present", "absent"


class _Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    """In the text form of `api.cgroup_path`, so that a journal can hold it."""

    @property
    def place(self) -> Path:
        """The path to open; that of a journal of an earlier version, which is in no text form, as it stands."""
        return Path(self.raw)

    @property
    def raw(self) -> str:
        """As `place`, without the cost of a Path: hundreds are read in each tick."""
        try:
            return raw_path(self.path)
        except ValueError:
            return self.path

    @property
    def key(self) -> str:
        """Unique name of the attribute."""
        return self.path

    def identity(self) -> str | None:
        """Number that tells a cgroup from a later one of the same path; "" without a cgroup, None if it is gone."""
        return ""


class KernelFile(_Attribute, frozen=True, tag="file", rename={"format": "form"}):
    """A file or one item in it."""

    format: Format
    layout: Layout = Layout.WHOLE
    item: str = ""
    is_cgroup: bool = True
    """True if the file lives and dies with a cgroup, by whose inode number it is identified."""

    @property
    def key(self) -> str:
        return f"{self.path}#{self.item}" if self.item else self.path

    def identity(self) -> str | None:
        return inode(os.path.dirname(self.raw)) if self.is_cgroup else ""

    def read(self) -> frozenset[str] | None:
        """The file's text. Raises HostError where it cannot be read or parsed."""
        try:
            fd = os.open(self.raw, os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = os.read(fd, _READ_BYTES).decode(errors="replace")
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise HostError(self.place, "read", error.errno or errno.EIO) from error
        try:
            found = item_text(self.layout, self.item, text)
            return frozenset((absent_text(self.format) if found is None else canonical(self.format, found),))
        except (ValueError, IndexError) as error:
            raise HostError(self.place, "read", errno.EINVAL, f"{text[:80]!r}: {error}") from error

    def write(self, value: str, expected: Collection[str], identity: str) -> None:  # noqa: ARG002
        """Write by one write(2); raises HostError with the kernel's reason, ENODEV if the cgroup was replaced."""
        command = item_command(self.layout, self.item, written_text(self.format, value))
        try:
            with _directory(self.place.parent, identity) as directory:
                try:
                    _write(self.place.name, command, directory)
                except OSError as error:
                    if error.errno != errno.EINVAL or self.place.name != _LIMIT_V1:
                        raise
                    # The kernel keeps the limit of memory within that of memory and swap, to which runtimes set the
                    # same value for a container without swap.
                    with suppress(FileNotFoundError):
                        _write(_SWAP_LIMIT_V1, command, directory)
                    _write(self.place.name, command, directory)
        except HostError:
            raise
        except OSError as error:
            if self.layout == Layout.DOMAIN:
                folder = self.place.parent
                root = folder if (folder / "info").is_dir() else folder.parent
                raise resctrl_groups.refusal(root, self.place, f"write {command!r} to", error) from error
            raise HostError(self.place, f"write {command!r} to", error.errno or errno.EIO) from error


class ProcessFiles(_Attribute, frozen=True, tag="processes"):
    """`/proc/<pid>/<name>` of every process below the cgroup `path`."""

    proc: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.path}#{self.name}"

    def identity(self) -> str | None:
        return inode(self.place)

    def read(self) -> frozenset[str] | None:
        """Distinct texts of all processes; empty without any."""
        if not self.place.is_dir():
            return None
        return processes.values_below(self.place, Path(self.proc), self.name)

    def write(self, value: str, expected: Collection[str], identity: str) -> None:
        """Set it for the processes that have one of the `expected` texts, and for no other; ENODEV as for a file."""
        try:
            with _directory(self.place, identity):
                processes.set_values_below(self.place, Path(self.proc), self.name, value, expected)
        except OSError as error:
            raise HostError(self.key, f"write {value!r} to", error.errno or errno.EIO) from error


class ResourceTasks(_Attribute, frozen=True, tag="resource_tasks"):
    """The resource group that the threads below the cgroup `path` are in; "" is the root group."""

    root: str

    @property
    def key(self) -> str:
        return f"{self.path}#resctrl"

    def identity(self) -> str | None:
        return inode(self.place)

    def read(self) -> frozenset[str] | None:
        """Groups that have any of them; empty without threads."""
        if not self.place.is_dir():
            return None
        return resctrl_groups.groups_of(Path(self.root), self.place)

    def write(self, value: str, expected: Collection[str], identity: str) -> None:
        """Move the threads that are in one of the `expected` groups, and no other; ENODEV as for a file."""
        with _directory(self.place, identity):
            resctrl_groups.move_below(Path(self.root), self.place, value, expected)


class ResourceGroup(_Attribute, frozen=True, tag="resource_group"):
    """Presence of the resctrl group `path`."""

    def read(self) -> frozenset[str] | None:
        """`present` or `absent`; None where resctrl is not mounted any more."""
        if not (self.place.parent / "schemata").exists():
            return None
        return frozenset((PRESENT if self.place.is_dir() else ABSENT,))

    def write(self, value: str, expected: Collection[str], identity: str) -> None:  # noqa: ARG002
        """Make or remove it."""
        if value == PRESENT:
            resctrl_groups.make_group(self.place)
        else:
            resctrl_groups.remove_group(self.place)


class TrafficClass(_Attribute, frozen=True, tag="traffic_class"):
    """The traffic class of the cgroup `path` on an interface; see `CgroupTraffic`. It may outlive its cgroup."""

    device: str
    minor: int
    level: int
    link_rate: int

    @property
    def key(self) -> str:
        return f"{self.path}#net.class"

    def identity(self) -> str | None:
        return link_identity(self.device)

    def read(self) -> frozenset[str] | None:
        """As `CgroupTraffic.read`."""
        return self._traffic().read()

    def write(self, value: str, expected: Collection[str], identity: str = "") -> None:  # noqa: ARG002
        """As `CgroupTraffic.write`; raises HostError with ENODEV if the interface was replaced."""
        if identity and identity != self.identity():
            raise HostError(self.device, f"set {value!r} on", errno.ENODEV)
        self._traffic().write(value)

    def _traffic(self) -> CgroupTraffic:
        return CgroupTraffic(self.place, self.device, self.minor, self.level, self.link_rate)


class IngressPolicer(_Attribute, frozen=True, tag="ingress_policer"):
    """The rate at which packets may arrive for the cgroup `path`; see `policers`. It ends with the process that
    set it: to any other one it reads as `max`."""

    @property
    def key(self) -> str:
        return f"{self.path}#net.ingress"

    def identity(self) -> str | None:
        """The program of a cgroup that is gone ends with this: nothing else looks there again."""
        found = inode(self.place)
        policer_of(self.place).end_unless(int(found or 0))
        return found

    def read(self) -> frozenset[str] | None:
        """As `CgroupPolicer.read`."""
        return policer_of(self.place).read()

    def write(self, value: str, expected: Collection[str], identity: str = "") -> None:  # noqa: ARG002
        """As `CgroupPolicer.write`; raises HostError with ENODEV if the cgroup was replaced."""
        if identity and identity != self.identity():
            raise HostError(self.place, f"set {value!r} on", errno.ENODEV)
        policer_of(self.place).write(value)


Attribute = KernelFile | ProcessFiles | ResourceTasks | ResourceGroup | TrafficClass | IngressPolicer


def parent_list(attribute: KernelFile) -> str:
    """CPUs or memory nodes that the parent cgroup may use; empty where the attribute is no list of them."""
    if attribute.format != Format.CPUS:
        return ""
    path = attribute.place
    for name in (f"{path.name}.effective", f"cpuset.effective_{path.name.rpartition('.')[2]}"):
        above = path.parent.parent / name
        if above.exists():
            return canonical(Format.CPUS, above.read_text())
    return ""


_RECLAIMING = frozenset({"memory.high", "memory.max"})
_RECLAIM_SECONDS = 0.1
"""Time that a writer waits for the kernel to reclaim."""
_EARLIER_SECONDS = 1.0
"""Time that a write waits for an earlier one of its file; the next step tries again."""
_reclaiming: dict[tuple[int, int], threading.Thread] = {}
"""Writes that the kernel reclaims in, by device and inode number of their file."""


@contextmanager
def _directory(path: Path, identity: str) -> Iterator[int]:
    """Descriptor of a cgroup's directory, if it has the expected inode number."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if identity and str(os.fstat(fd).st_ino) != identity:
            raise HostError(path, "write to", errno.ENODEV, "the cgroup was replaced")
        yield fd
    finally:
        os.close(fd)


def _write(name: str, command: str, directory: int) -> None:
    # Linux 6.16 sets a memory limit below usage without reclaiming in the writer's time, if asked so; the cgroup's own
    # processes then reclaim as they allocate.
    patience = 0
    if name in _RECLAIMING:
        patience = os.O_NONBLOCK
        _await_earlier(name, directory)
    is_reclaiming_v1 = name in (_LIMIT_V1, _SWAP_LIMIT_V1) and _is_lower(name, command, directory)
    fd = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | patience, dir_fd=directory)
    content = f"{command}\n".encode()
    if name in _RECLAIMING:
        _write_and_leave(fd, content)
        return
    try:
        if is_reclaiming_v1:
            write_within(_RECLAIM_SECONDS, fd, content)
        else:
            os.write(fd, content)
    except InterruptedError as error:
        if _read_at(name, directory).strip() != command.encode():  # it may have been set just before time was up
            raise OSError(errno.EAGAIN, "the kernel did not reclaim so much in time") from error
    finally:
        os.close(fd)


def _is_lower(name: str, command: str, directory: int) -> bool:
    """Whether a limit would be lower than the present one, which usage is known to fit."""
    try:
        return 0 <= int(command) < int(_read_at(name, directory))
    except ValueError:
        return True


def _read_at(name: str, directory: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


def _write_and_leave(fd: int, content: bytes) -> None:
    """Write a memory limit in a thread, and leave it there while the kernel reclaims.

    Before 6.16 the kernel sets the limit first, and then reclaims in the writer's time down to it.
    """
    status = os.fstat(fd)
    failed: list[OSError] = []

    def write() -> None:
        try:
            os.write(fd, content)
        except OSError as error:
            failed.append(error)
        finally:
            os.close(fd)

    thread = threading.Thread(target=write, name="memory-limit", daemon=True)
    thread.start()
    thread.join(_RECLAIM_SECONDS)
    if thread.is_alive():
        _reclaiming[status.st_dev, status.st_ino] = thread
    if failed:
        raise failed[0]


def _await_earlier(name: str, directory: int) -> None:
    """Wait for a write to the same file that was left: no older value comes after a newer one."""
    for key in [key for key, thread in list(_reclaiming.items()) if not thread.is_alive()]:
        _reclaiming.pop(key, None)
    status = os.stat(name, dir_fd=directory)
    earlier = _reclaiming.pop((status.st_dev, status.st_ino), None)
    if earlier is not None:
        earlier.join(_EARLIER_SECONDS)
        if earlier.is_alive():
            _reclaiming[status.st_dev, status.st_ino] = earlier
            raise OSError(errno.EBUSY, "an earlier write of this file has not ended")


def inode(directory: Path | str) -> str | None:
    """Inode number of a directory, which the kernel gives to one cgroup in a boot; None if it is gone."""
    try:
        return str(os.stat(directory).st_ino)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise HostError(directory, "stat", error.errno or errno.EIO) from error
