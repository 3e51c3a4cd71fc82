"""Root qdisc, HTB classes and filters of one interface, by netlink."""

import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from koordlet.host.files import HostError
from koordlet.host.traffic.classes import (
    DEFAULT_CLASS,
    DEFAULT_CLASS_PRIORITY,
    FIRST_MINOR,
    LINK_CLASS,
    MAJOR,
    ROOT,
    Traffic,
    default_class_rate,
)

DEFAULT, OURS = "default", "ours"
_TO_ROOT = 0xFFFFFFFF
_INGRESS = 0xFFFF
_PACKET_BYTES = 1600
_QUANTUM_BYTES = (1600, 60_000)
_FRESH_SECONDS = 0.05
_NETNS = "/proc/thread-self/ns/net"
_BURSTS_PER_SECOND = 250
"""A class may send at once what it has in 4 ms: the longest tick of the kernels in use."""


class Link:
    """An interface, as a context in which netlink is open. Raises HostError, with ENODEV for a missing interface."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> Self:
        from pyroute2 import IPRoute

        try:
            self._index = socket.if_nametoindex(self.device)
        except OSError as error:
            raise HostError(self.device, "find", errno.ENODEV) from error
        self.identity = link_identity(self.device) or ""
        self._netlink = IPRoute()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._netlink.close()

    def root(self) -> str:
        """Root qdisc: `default` for the kernel's own (its handle is 0), `ours`, or kind and handle of another one."""
        with self._naming_errors("read the queueing of"):
            for qdisc in self._netlink.get_qdiscs(index=self._index):
                kind, handle = qdisc.get_attr("TCA_KIND"), qdisc["handle"]
                if qdisc["parent"] == _TO_ROOT and handle == ROOT and kind == "htb":
                    return OURS
                if handle >> 16 not in (0, _INGRESS):
                    return f"{kind} {handle >> 16:x}:"
        return DEFAULT

    def classes(self) -> dict[int, Traffic]:
        """Classes of cgroups by minor number."""
        with self._naming_errors("read the classes of"):
            dumped = list(self._netlink.get_classes(index=self._index))
        return {one["handle"] & 0xFFFF: _traffic(one) for one in dumped if _is_cgroup_class(one["handle"])}

    def filters(self) -> dict[int, str]:
        """Names of their filters, by minor number."""
        found: dict[int, str] = {}
        with self._naming_errors("read the filters of"):
            for one in self._netlink.get_filters(index=self._index, parent=ROOT):
                options = one.get_attr("TCA_OPTIONS")
                if options is not None:
                    found[one["handle"]] = options.get_attr("TCA_BPF_NAME") or ""
        return found

    def make_root(self, link_rate: int) -> None:
        """Make HTB with the link's class and the default class, if it is not there."""
        if self.root() == DEFAULT:
            with self._changing("queue by class on"):
                self._netlink.tc("add", "htb", self._index, ROOT, default=DEFAULT_CLASS & 0xFFFF)
        self._set(LINK_CLASS, ROOT, Traffic(link_rate, link_rate, 0))
        self.set_default_class(link_rate)

    def set_default_class(self, link_rate: int) -> None:
        """Guarantee the rest of the link to the default class."""
        promised = [traffic.rate for traffic in self.classes().values()]
        self._set(
            DEFAULT_CLASS,
            LINK_CLASS,
            Traffic(default_class_rate(link_rate, promised), link_rate, DEFAULT_CLASS_PRIORITY),
        )

    def set_class(self, minor: int, traffic: Traffic) -> None:
        """Make or change one."""
        self._set(ROOT | minor, LINK_CLASS, traffic)

    def _set(self, handle: int, parent: int, traffic: Traffic) -> None:
        with self._changing(f"set the class {handle & 0xFFFF:x} of"):
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

    def set_filter(self, minor: int, preference: int, program: int, name: str) -> None:
        """Make or change the filter of a class; a lower preference comes first."""
        with self._changing(f"classify traffic of class {minor:x} on"):
            self._netlink.tc(
                "replace-filter",
                "bpf",
                self._index,
                minor,
                fd=program,
                name=name,
                parent=ROOT,
                classid=ROOT | minor,
                prio=preference,
            )

    def remove_filter(self, minor: int, preference: int) -> None:
        """Remove a filter, if it is there."""
        with self._changing("remove a filter from", but=errno.ENOENT):
            self._netlink.tc("del-filter", "bpf", self._index, minor, parent=ROOT, prio=preference)

    def remove_class(self, minor: int) -> None:
        """Remove a class, if it is there; its filter must be gone."""
        with self._changing("remove a class from", but=errno.ENOENT):
            self._netlink.tc("del-class", None, self._index, ROOT | minor)

    def remove_root(self) -> None:
        """Remove HTB with all below it; the kernel sets its default again."""
        with self._changing("remove the classes from", but=errno.ENOENT):
            self._netlink.tc("del", None, self._index, ROOT, parent=_TO_ROOT)

    @contextmanager
    def _changing(self, operation: str, but: int = 0) -> Iterator[None]:
        try:
            with self._naming_errors(operation, but):
                yield
        finally:
            _seen.clear()

    @contextmanager
    def _naming_errors(self, operation: str, but: int = 0) -> Iterator[None]:
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            yield
        except NetlinkError as error:
            if error.code != but:
                detail = f"{os.strerror(error.code)} (HTB and cls_bpf are needed)" if error.code == errno.ENOENT else ""
                raise HostError(self.device, operation, error.code, detail) from error


@dataclass(frozen=True, slots=True)
class LinkState:
    """State of a link; nothing but `root` where that is not ours."""

    root: str
    classes: Mapping[int, Traffic]
    filters: Mapping[int, str]


_seen: dict[str, tuple[float, LinkState]] = {}


def link_state(device: str, identity: str) -> LinkState:
    """State of a link, at most 50 ms old, since all classes of a link are read together.

    `identity` is that of the link. Raises HostError.
    """
    at, state = _seen.get(identity, (-_FRESH_SECONDS, None))
    now = time.monotonic()
    if state is None or now - at >= _FRESH_SECONDS:
        with Link(device) as link:
            root = link.root()
            state = LinkState(root, link.classes(), link.filters()) if root == OURS else LinkState(root, {}, {})
        _seen[identity] = (now, state)
    return state


def link_identity(device: str) -> str | None:
    """Number that tells an interface from others of its name in any network namespace; None if there is none."""
    try:
        return f"{Path(_NETNS).stat().st_ino}:{socket.if_nametoindex(device)}"
    except OSError:
        return None


def _is_cgroup_class(handle: int) -> bool:
    return handle >> 16 == MAJOR and handle & 0xFFFF >= FIRST_MINOR


def _traffic(message: Any) -> Traffic:
    options = message.get_attr("TCA_OPTIONS")
    short = options.get_attr("TCA_HTB_PARMS")
    rate = options.get_attr("TCA_HTB_RATE64") or short["rate"]
    return Traffic(rate, options.get_attr("TCA_HTB_CEIL64") or short["ceil"], short["prio"])
