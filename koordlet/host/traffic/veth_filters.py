"""Classifiers on what leaves by an interface, as filters on clsact: for kernels without tcx.

A filter outlives the process that set it, so its name says that it is ours, for which cgroup, and at which rate.
Filters of others on the interface stay. With the last filter an empty clsact goes: that is no queue, and does nothing.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from koordlet.host.files import HostError

_MAJOR, _EGRESS, _INGRESS = 0xFFFF0000, 0xFFFFFFF3, 0xFFFFFFF2
"""Handles of clsact, TC_H_CLSACT with the minors of what leaves and of what arrives."""
_FIRST = 1
"""Preference. Before others: their verdict may end the chain, ours to go on never does."""
_FIRST_HANDLE = 0x4B64_0000
_NAME = re.compile(r"koord-police-(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class VethFilter:
    """One of our filters: for the cgroup of this inode, at bytes per second."""

    handle: int
    inode: int
    rate: int


class VethFilters:
    """Filters of the interfaces here, as a context in which netlink is open."""

    def __enter__(self) -> Self:
        from pyroute2 import IPRoute

        self._netlink = IPRoute()
        return self

    def __exit__(self, *_error: object) -> None:
        self._netlink.close()

    def veths(self) -> list[int]:
        """Indices of all veth interfaces here. Raises HostError."""
        with naming_errors("veth", "list"):
            return [link["index"] for link in self._netlink.get_links(kind="veth")]
        return []

    def of(self, interface: int) -> list[VethFilter]:
        """Our filters on an interface; none where it is gone or has no clsact."""
        found = []
        for one in self._dump(interface, _EGRESS):
            options = one.get_attr("TCA_OPTIONS")
            name = _NAME.fullmatch((options.get_attr("TCA_BPF_NAME") if options is not None else None) or "")
            if name:
                found.append(VethFilter(one["handle"], int(name[1]), int(name[2])))
        return found

    def add(self, interface: int, inode: int, rate: int, program: int) -> int:
        """Add a filter before those of others; return its handle. Raises HostError, with ENODEV for no interface."""
        with naming_errors(f"interface {interface}", "make clsact on", errno.EEXIST):
            self._netlink.tc("add", "clsact", interface)
        taken = {one.handle for one in self.of(interface)}
        handle = next(
            number for number in range(_FIRST_HANDLE + 1, _FIRST_HANDLE + 2 + len(taken)) if number not in taken
        )
        with naming_errors(f"interface {interface}", "police what leaves by"):
            self._netlink.tc(
                "add-filter",
                "bpf",
                interface,
                handle,
                fd=program,
                name=f"koord-police-{inode}-{rate}",
                parent=_EGRESS,
                prio=_FIRST,
                direct_action=True,
            )
        return handle

    def remove(self, interface: int, handle: int) -> None:
        """Remove a filter; and clsact, where no filter is left."""
        gone = (errno.ENOENT, errno.ENODEV, errno.EINVAL)
        with naming_errors(f"interface {interface}", "remove a filter from", *gone):
            self._netlink.tc("del-filter", "bpf", interface, handle, parent=_EGRESS, prio=_FIRST)
        if not self._dump(interface, _EGRESS) and not self._dump(interface, _INGRESS):
            with naming_errors(f"interface {interface}", "remove clsact from", *gone):
                self._netlink.tc("del", "clsact", interface)

    def _dump(self, interface: int, parent: int) -> list[Any]:
        with naming_errors(f"interface {interface}", "read the filters of", errno.ENODEV, errno.EINVAL, errno.ENOENT):
            return list(self._netlink.get_filters(index=interface, parent=parent))
        return []


@contextmanager
def naming_errors(place: str, operation: str, *but: int) -> Iterator[None]:
    """Raise what netlink raises as HostError, except for these numbers."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code not in but:
            detail = "clsact and cls_bpf are needed" if error.code == errno.ENOENT else ""
            raise HostError(place, operation, error.code, detail) from error
