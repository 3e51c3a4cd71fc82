"""Taps on the host's ends of other network namespaces: there packets are given to their class before they are routed.

A tap is a BPF link of this process: no queueing is set up for it, nobody else's is touched, and the kernel takes it
away when the agent ends, however it ends. So taps need no journal.
"""

import os
import socket
from functools import cache
from pathlib import Path

from koordlet.host.files import HostError
from koordlet.host.traffic import classifiers as traffic_programs
from koordlet.host.traffic.classifiers import Test
from probes.libbpf import BpfError, attach_to_arrivals

_BTF = Path("/sys/kernel/btf/vmlinux")
_GONE = 19


@cache
def can_tap() -> bool:
    """Whether the kernel has tcx (Linux 6.6), as its type information tells."""
    try:
        return b"BPF_TCX_INGRESS" in _BTF.read_bytes()
    except OSError:
        return False


class Taps:
    """Those of one link's network namespace."""

    def __init__(self) -> None:
        self._tests: dict[int, Test] = {}
        self._links: list[int] = []
        self._interfaces: list[tuple[int, str]] = []

    def has(self, minor: int, test: Test) -> bool:
        """Whether every namespace that is there now is tapped for a class."""
        return self._tests.get(minor) == test and self._interfaces == socket.if_nameindex()

    def add(self, minor: int, test: Test) -> None:
        """Tap for one class more; raises HostError."""
        self._tests[minor] = test
        self._renew()

    def remove(self, minor: int) -> None:
        """One class less."""
        if self._tests.pop(minor, None) is not None:
            self._renew()

    def _renew(self) -> None:
        """New taps come before old ones go, so that no packet slips by."""
        old, self._links = self._links, []
        self._interfaces = socket.if_nameindex()
        try:
            if self._tests:
                self._attach()
        finally:
            for link in old:
                os.close(link)

    def _attach(self) -> None:
        program = traffic_programs.load(traffic_programs.tap(self._tests))
        try:
            for interface in _ends():
                try:
                    self._links.append(attach_to_arrivals(program, interface))
                except BpfError as error:
                    if error.errno != _GONE:
                        raise HostError(f"interface {interface}", "tap", error.errno or 0) from error
        finally:
            os.close(program)


def _ends() -> list[int]:
    """Interfaces whose other end is in another network namespace."""
    from pyroute2 import IPRoute

    with IPRoute() as netlink:
        return [
            link["index"] for link in netlink.get_links(kind="veth") if link.get_attr("IFLA_LINK_NETNSID") is not None
        ]


_taps: dict[str, Taps] = {}


def taps_of(link_identity: str) -> Taps:
    """This process's taps for a link."""
    return _taps.setdefault(link_identity, Taps())
