"""The host's ends of the veth pairs of a cgroup's pods: all that arrives for them comes by there.

A network namespace is the cgroup's where none of its processes is elsewhere. So a process that entered the namespace of
another pod brings no limit to that pod.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from koordlet.host.cgroups.processes import first_pid_in, pids_below
from koordlet.host.traffic.veth_filters import naming_errors

_PROC = Path("/proc")
_CAP_SYS_PTRACE = 19
"""Number in include/uapi/linux/capability.h."""


def own_namespace() -> int:
    """Inode of the network namespace of this thread."""
    return (_PROC / "thread-self/ns/net").stat().st_ino


def sees_namespaces() -> bool:
    """Return whether this thread may see the namespaces of other users' processes: namespaces(7) asks for a right that
    only CAP_SYS_PTRACE gives."""
    for line in (_PROC / "thread-self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False


def namespaces_below(directory: Path) -> dict[int, int]:
    """Network namespaces, each with a process in it: of the first process of the cgroup and of each one below."""
    found: dict[int, int] = {}
    for folder, _below, _files in os.walk(directory):
        pid = first_pid_in(folder)
        if pid is not None and (inode := _namespace(pid)) is not None:
            found.setdefault(inode, pid)
    return found


def shared_namespaces(directory: Path, namespaces: Iterable[int]) -> set[int]:
    """Those of the namespaces in which a process outside of the cgroup is, too; all, where these may not be seen."""
    asked = set(namespaces)
    if not asked or not sees_namespaces():
        return asked
    found = {int(name): inode for name in os.listdir(_PROC) if name.isdecimal() and (inode := _namespace(int(name)))}
    inside = pids_below(directory)  # read last: what began meanwhile is in it, and not in the list
    return {inode for pid, inode in found.items() if inode in asked and pid not in inside}


def host_ends(namespaces: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Indices of the veth interfaces here whose other end is in each namespace; `namespaces` as `namespaces_below`.

    Raises HostError.
    """
    from pyroute2 import IPRoute

    if not namespaces:
        return {}
    found: dict[int, frozenset[int]] = {}
    with naming_errors("veth", "find the other ends of"), IPRoute() as netlink:
        ends: dict[int, set[int]] = {}
        for link in netlink.get_links(kind="veth"):
            number = link.get_attr("IFLA_LINK_NETNSID")
            if number is not None:
                ends.setdefault(number, set()).add(link["index"])
        for inode, pid in namespaces.items():
            number = _number(netlink, inode, pid)
            found[inode] = frozenset(ends.get(number, ()))
    return found


def _number(netlink: object, inode: int, pid: int) -> int:
    """The number that this namespace has for another one; -1 if none, or if the process is no longer in it."""
    try:
        fd = os.open(_PROC / str(pid) / "ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        if os.fstat(fd).st_ino != inode:
            return -1
        answer = netlink.get_netnsid(fd=fd)  # type: ignore[attr-defined]
        return -1 if answer is None or answer["nsid"] is None else int(answer["nsid"])
    finally:
        os.close(fd)


def _namespace(pid: int) -> int | None:
    try:
        return (_PROC / str(pid) / "ns/net").stat().st_ino
    except OSError:
        return None
