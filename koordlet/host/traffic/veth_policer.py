"""Policing of what arrives for a cgroup of v1: at the host's ends of the veth pairs of its pods.

Sockets know no cgroup of v1. What arrives for a pod with a network of its own leaves by the host's end of its veth, so
one program with one clock counts there for all pods of the cgroup (tcx; before Linux 6.6 a filter on clsact). Pods that
come later are covered within some looks. Pods in the host's own network are not, nor are interfaces other than veth.

Its lease is that of `ingress`: a program that is not looked at passes everything.
"""

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.files import HostError
from koordlet.host.traffic.ingress import MAX, OF_LINKS, policer_program, renew
from koordlet.host.traffic.pod_links import (
    host_ends,
    namespaces_below,
    own_namespace,
    sees_namespaces,
    shared_namespaces,
)
from koordlet.host.traffic.veth_filters import VethFilters
from koordlet.host.traffic.veth_taps import has_tcx

_FRESH_SECONDS = 2.0
"""Time between two looks for pods of one cgroup that came or went."""


def why_not(directory: Path) -> Unsupported | None:
    """Reason why what arrives for a cgroup of v1 cannot be policed; None if it can, or if it has no process yet."""
    if not sees_namespaces():
        return Unsupported(
            "the network namespaces of other programs may not be seen, by which the pods of a cgroup of v1 are found",
            "needs CAP_SYS_PTRACE; or boot with cgroup v2",
        )
    namespaces = namespaces_below(directory)
    if set(namespaces) == {own_namespace()}:
        return Unsupported(
            f"the processes of {directory} are in the host's own network, whose sockets know no cgroup of v1",
            "boot with cgroup v2",
        )
    return None


@dataclass(slots=True)
class _Policing:
    """A program in effect."""

    inode: int
    rate: int
    program: int
    lease: int
    links: dict[int, int] = field(default_factory=dict)
    """Descriptors of links by interface."""
    filters: dict[int, int] = field(default_factory=dict)
    """Handles of filters by interface, where there is no tcx."""
    own: set[int] = field(default_factory=set)
    """Network namespaces that were found to be the cgroup's alone."""
    looked: float = float("-inf")

    @property
    def covered(self) -> set[int]:
        return {*self.links, *self.filters}

    def close(self) -> None:
        for interface in self.covered:
            self.leave(interface)
        for fd in (self.program, self.lease):
            os.close(fd)

    def cover(self, interface: int) -> None:
        from probes.libbpf import BpfError, attach_to_departures

        try:
            if has_tcx():
                self.links[interface] = attach_to_departures(self.program, interface)
            else:
                with VethFilters() as filters:
                    self.filters[interface] = filters.add(interface, self.inode, self.rate, self.program)
        except BpfError as error:
            if error.errno != errno.ENODEV:
                raise HostError(f"interface {interface}", "police what leaves by", error.errno or errno.EIO) from error
        except HostError as error:
            if error.errno != errno.ENODEV:
                raise

    def leave(self, interface: int) -> None:
        if interface in self.links:
            os.close(self.links.pop(interface))
        else:
            _remove_filters(self.inode, [interface], self.filters.pop(interface))


_policing: dict[str, _Policing] = {}
"""Of this process, by the directory of the cgroup."""


@dataclass(frozen=True, slots=True)
class VethPolicer:
    """What arrives for the pods of the v1 cgroup `directory`."""

    directory: Path

    def end_unless(self, inode: int) -> None:
        """As `CgroupPolicer.end_unless`."""
        policing = _policing.get(str(self.directory))
        if policing is not None and policing.inode != inode:
            _policing.pop(str(self.directory)).close()

    def read(self) -> frozenset[str] | None:
        """As `CgroupPolicer.read`; of filters that another process left, their rates too.

        Each look covers pods that came since the last one. Raises HostError.
        """
        try:
            inode = self.directory.stat().st_ino
        except OSError:
            inode = 0
        self.end_unless(inode)
        if not inode:
            return None
        policing = _policing.get(str(self.directory))
        if policing is None:
            return _left_rates(inode) or frozenset((MAX,))
        renew(policing.lease)
        if time.monotonic() - policing.looked >= _FRESH_SECONDS:
            self._follow(policing)
        return frozenset((str(policing.rate),))

    def write(self, value: str) -> None:
        """As `CgroupPolicer.write`."""
        key = str(self.directory)
        old = _policing.get(key)
        if value == MAX:
            if old is not None:
                _policing.pop(key).close()
            elif not has_tcx() and (inode := _inode(self.directory)):
                with VethFilters() as filters:
                    veths = filters.veths()
                _remove_filters(inode, veths)
            return
        fresh = self._start(int(value))
        try:
            self._follow(fresh)
        except HostError:
            fresh.close()
            raise
        _policing[key] = fresh
        if old is not None:
            old.close()

    def _start(self, rate: int) -> _Policing:
        from probes.libbpf import create_array, load_classifier

        opened: list[int] = []
        try:
            bucket, lease = (create_array(name, 8) for name in ("koord_bucket", "koord_lease"))
            opened += [bucket, lease]
            renew(lease)
            program = load_classifier("koord_police", policer_program(rate, bucket, lease, OF_LINKS))
            opened.remove(lease)
            return _Policing(self.directory.stat().st_ino, rate, program, lease)
        except OSError as error:
            raise HostError(self.directory, "police what arrives for", error.errno or errno.EIO) from error
        finally:
            for fd in opened:
                os.close(fd)

    def _follow(self, policing: _Policing) -> None:
        """Cover the interfaces of pods that came, leave those of pods that went."""
        policing.looked = time.monotonic()
        namespaces = namespaces_below(self.directory)
        namespaces.pop(own_namespace(), None)
        policing.own &= namespaces.keys()
        policing.own |= (
            namespaces.keys() - policing.own - shared_namespaces(self.directory, namespaces.keys() - policing.own)
        )
        ends = host_ends({inode: pid for inode, pid in namespaces.items() if inode in policing.own})
        wanted = _all(ends)
        for interface in wanted - policing.covered:
            policing.cover(interface)
        for interface in policing.covered - wanted:
            policing.leave(interface)


def _all(ends: Mapping[int, frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*ends.values())


def _inode(directory: Path) -> int:
    try:
        return directory.stat().st_ino
    except OSError:
        return 0


def _left_rates(inode: int) -> frozenset[str]:
    """Rates of filters for a cgroup that no process renews."""
    if has_tcx():
        return frozenset()
    with VethFilters() as filters:
        return frozenset(
            str(one.rate) for interface in filters.veths() for one in filters.of(interface) if one.inode == inode
        )


def _remove_filters(inode: int, interfaces: list[int], handle: int = 0) -> None:
    """Remove our filters for a cgroup, only that of a handle where it is given."""
    with VethFilters() as filters:
        for interface in interfaces:
            for one in filters.of(interface):
                if one.inode == inode and handle in (0, one.handle):
                    filters.remove(interface, one.handle)
