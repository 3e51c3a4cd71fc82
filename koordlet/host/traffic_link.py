"""The queueing of one interface by netlink: its root, HTB classes, and the filters that fill them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from koordlet.host.traffic import FIRST_MINOR, LINK, MAJOR, REST, REST_PRIORITY, ROOT, Traffic, rest_rate
from koordlet.host.tree import HostError

DEFAULT, OURS = "default", "ours"
_TO_ROOT = 0xFFFFFFFF
_INGRESS = 0xFFFF
_PACKET_BYTES = 1600
_QUANTUM_BYTES = (1600, 60_000)
_BURSTS_PER_SECOND = 250
"""A class may send at once what it has in 4 ms: the longest tick of the kernels in use."""


class Link:
    """A context: netlink is open within. Raises HostError, with ENODEV where there is no such interface."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> Self:
        from pyroute2 import IPRoute

        self._netlink = IPRoute()
        found = self._netlink.link_lookup(ifname=self.device)
        if not found:
            self._netlink.close()
            raise HostError(self.device, "find", errno.ENODEV)
        self._index: int = found[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._netlink.close()

    def root(self) -> str:
        """`default` for what the kernel sets by itself (its handle is 0), `ours`, or what somebody else set."""
        with self._saying("read the queueing of"):
            for qdisc in self._netlink.get_qdiscs(index=self._index):
                kind, handle = qdisc.get_attr("TCA_KIND"), qdisc["handle"]
                if qdisc["parent"] == _TO_ROOT and handle == ROOT and kind == "htb":
                    return OURS
                if handle >> 16 not in (0, _INGRESS):
                    return f"{kind} {handle >> 16:x}:"
        return DEFAULT

    def classes(self) -> dict[int, Traffic]:
        """The cgroups' classes by minor number."""
        with self._saying("read the classes of"):
            dumped = list(self._netlink.get_classes(index=self._index))
        return {one["handle"] & 0xFFFF: _traffic(one) for one in dumped if _is_of_a_cgroup(one["handle"])}

    def filters(self) -> dict[int, str]:
        """Names of the filters that fill them, by minor number."""
        found: dict[int, str] = {}
        with self._saying("read the filters of"):
            for one in self._netlink.get_filters(index=self._index, parent=ROOT):
                options = one.get_attr("TCA_OPTIONS")
                if options is not None:
                    found[one["handle"]] = options.get_attr("TCA_BPF_NAME") or ""
        return found

    def make_root(self, link_rate: int) -> None:
        """HTB with the link's class, and the one of those who have none; what is there already stays."""
        if self.root() == DEFAULT:
            with self._saying("queue by class on"):
                self._netlink.tc("add", "htb", self._index, ROOT, default=REST & 0xFFFF)
        self._set(LINK, ROOT, Traffic(link_rate, link_rate, 0))
        self.promise_rest(link_rate)

    def promise_rest(self, link_rate: int) -> None:
        """Promise what is left to those who have no class."""
        promised = [traffic.rate for traffic in self.classes().values()]
        self._set(REST, LINK, Traffic(rest_rate(link_rate, promised), link_rate, REST_PRIORITY))

    def set_class(self, minor: int, traffic: Traffic) -> None:
        """Make or change one."""
        self._set(ROOT | minor, LINK, traffic)

    def _set(self, handle: int, parent: int, traffic: Traffic) -> None:
        with self._saying(f"set the class {handle & 0xFFFF:x} of"):
            self._netlink.tc(
                "replace-class",
                "htb",
                self._index,
                handle,
                parent=parent,
                rate=traffic.rate,
                ceil=traffic.ceiling,
                prio=traffic.priority,
                burst=traffic.rate // _BURSTS_PER_SECOND + _PACKET_BYTES,
                cburst=traffic.ceiling // _BURSTS_PER_SECOND + _PACKET_BYTES,
                quantum=min(max(traffic.rate // 100, _QUANTUM_BYTES[0]), _QUANTUM_BYTES[1]),
            )

    def set_filter(self, minor: int, turn: int, program: int, name: str) -> None:
        """Make or change the filter of a class; those of a lower turn are asked first."""
        with self._saying(f"classify traffic of class {minor:x} on"):
            self._netlink.tc(
                "replace-filter",
                "bpf",
                self._index,
                minor,
                fd=program,
                name=name,
                parent=ROOT,
                classid=ROOT | minor,
                prio=turn,
            )

    def remove_filter(self, minor: int, turn: int) -> None:
        """What is gone already is as good."""
        with self._saying("remove a filter from", but=errno.ENOENT):
            self._netlink.tc("del-filter", "bpf", self._index, minor, parent=ROOT, prio=turn)

    def remove_class(self, minor: int) -> None:
        """What is gone already is as good; its filter must be."""
        with self._saying("remove a class from", but=errno.ENOENT):
            self._netlink.tc("del-class", None, self._index, ROOT | minor)

    def remove_root(self) -> None:
        """With all below it; the kernel sets its default again."""
        with self._saying("remove the classes from", but=errno.ENOENT):
            self._netlink.tc("del", None, self._index, ROOT, parent=_TO_ROOT)

    @contextmanager
    def _saying(self, operation: str, but: int = 0) -> Iterator[None]:
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            yield
        except NetlinkError as error:
            if error.code != but:
                detail = f"{os.strerror(error.code)} (HTB and cls_bpf are needed)" if error.code == errno.ENOENT else ""
                raise HostError(self.device, operation, error.code, detail) from error


def _is_of_a_cgroup(handle: int) -> bool:
    return handle >> 16 == MAJOR and handle & 0xFFFF >= FIRST_MINOR


def _traffic(message: Any) -> Traffic:
    options = message.get_attr("TCA_OPTIONS")
    short = options.get_attr("TCA_HTB_PARMS")
    rate = options.get_attr("TCA_HTB_RATE64") or short["rate"]
    return Traffic(rate, options.get_attr("TCA_HTB_CEIL64") or short["ceil"], short["prio"])
