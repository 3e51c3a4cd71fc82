"""Taps on the host's ends of veth pairs: BPF programs (tcx) that give packets to their class before they are routed.

A tap is a BPF link of this process: no qdisc is set up or changed for it, and the kernel removes it when the agent
ends, however it ends. So taps need no journal.
"""

import errno
import os
import socket
from functools import cache
from pathlib import Path

from koordlet.host.files import HostError
from koordlet.host.traffic import classifiers
from koordlet.host.traffic.classifiers import PacketMatch

_BTF = Path("/sys/kernel/btf/vmlinux")


@cache
def has_tcx() -> bool:
    """Return whether the kernel has tcx (Linux 6.6), by its BTF."""
    try:
        return b"BPF_TCX_INGRESS" in _BTF.read_bytes()
    except OSError:
        return False


class Taps:
    """Taps for one link, in its network namespace."""

    def __init__(self) -> None:
        self._matches: dict[int, PacketMatch] = {}
        self._links: list[int] = []
        self._interfaces: list[tuple[int, str]] = []

    def has(self, minor: int, match: PacketMatch) -> bool:
        """Return whether every present namespace is tapped for a class."""
        return self._matches.get(minor) == match and self._interfaces == socket.if_nameindex()

    def add(self, minor: int, match: PacketMatch) -> None:
        """Tap for one more class; raises HostError."""
        self._matches[minor] = match
        self._renew()

    def remove(self, minor: int) -> None:
        """Remove the taps of a class."""
        if self._matches.pop(minor, None) is not None:
            self._renew()

    def _renew(self) -> None:
        """Attach the new taps before the old ones are closed, so that no packet slips by."""
        old, self._links = self._links, []
        self._interfaces = socket.if_nameindex()
        try:
            if self._matches:
                self._attach()
        finally:
            for link in old:
                os.close(link)

    def _attach(self) -> None:
        from probes.libbpf import BpfError, attach_to_arrivals

        program = classifiers.load_program(classifiers.tap_program(self._matches))
        try:
            for interface in _veths_to_namespaces():
                try:
                    self._links.append(attach_to_arrivals(program, interface))
                except BpfError as error:
                    if error.errno != errno.ENODEV:
                        raise HostError(f"interface {interface}", "tap", error.errno or 0) from error
        finally:
            os.close(program)


def _veths_to_namespaces() -> list[int]:
    """Veth interfaces whose other end is in another network namespace."""
    from pyroute2 import IPRoute

    with IPRoute() as netlink:
        return [
            link["index"] for link in netlink.get_links(kind="veth") if link.get_attr("IFLA_LINK_NETNSID") is not None
        ]


_taps: dict[str, Taps] = {}


def taps_of(link_identity: str) -> Taps:
    """Taps of this process for a link."""
    return _taps.setdefault(link_identity, Taps())
