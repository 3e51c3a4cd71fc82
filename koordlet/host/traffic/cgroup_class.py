"""The traffic class of one cgroup: HTB on the link, the class, its filter, and net_cls.classid on v1.

These are made in that order and removed in the opposite one, the root with the last class. So the remains of a killed
agent can be told from a complete class, and another agent can remove them.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from koordlet.host.files import HostError
from koordlet.host.traffic import classifiers
from koordlet.host.traffic.classes import ROOT, Traffic, parse_traffic
from koordlet.host.traffic.classifiers import CgroupMatch, ClassidMatch, PacketMatch
from koordlet.host.traffic.net_cls import classid_of, clear_classids, set_classids
from koordlet.host.traffic.qdisc import DEFAULT, OURS, Link, link_identity, link_state
from koordlet.host.traffic.veth_taps import has_tcx, taps_of

NONE = "none"
BARE = "bare"
"""Text for our root qdisc without any class: an agent died between the two."""
NET_CLS = 0
"""In place of a level: the cgroup is in the net_cls hierarchy of v1."""
_LOWEST_PREFERENCE = 1000


@dataclass(frozen=True, slots=True)
class CgroupTraffic:
    """Class of the cgroup `directory`; `level` is its depth in the unified hierarchy, or NET_CLS."""

    directory: Path
    device: str
    minor: int
    level: int
    link_rate: int
    """Bytes per second."""

    def read(self) -> frozenset[str] | None:
        """The class as `rate= ceil= prio=`, `none`, both where it does not take all the cgroup's packets, `bare`, or
        the root qdisc that another program set; None if there is no such interface."""
        identity = link_identity(self.device)
        if identity is None:
            return None
        state = link_state(self.device, identity)
        if state.root != OURS:
            return frozenset((NONE if state.root == DEFAULT else state.root,))
        classes = state.classes
        if self.minor not in classes:
            return frozenset((NONE if classes else BARE,))
        found = {str(classes[self.minor])}
        return frozenset(found if self._is_classified(state.filters.get(self.minor), identity) else found | {NONE})

    def _is_classified(self, name: str | None, identity: str) -> bool:
        """Return whether the cgroup's packets go there; True where the cgroup is no more."""
        match = self._match()
        if name is None or match is None:
            return name is not None
        if self.level == NET_CLS and classid_of(self.directory) == 0:
            return False
        return name == _name(match) and (not has_tcx() or taps_of(identity).has(self.minor, match))

    def write(self, value: str) -> None:
        """Make or change the class, or remove it for NONE and BARE. Raises HostError."""
        with Link(self.device) as link:
            root = link.root()
            if value in (NONE, BARE):
                self._remove(link, is_ours=root == OURS)
            elif root not in (DEFAULT, OURS):
                raise HostError(self.device, "queue by class on", errno.EBUSY, f"another program set {root}")
            else:
                self._make(link, parse_traffic(value, self.link_rate))

    def _make(self, link: Link, traffic: Traffic) -> None:
        link.make_root(self.link_rate)
        link.set_class(self.minor, traffic)
        link.set_default_class(self.link_rate)
        match = self._match()
        if match is None:
            raise HostError(self.directory, "stat", errno.ENOENT)
        self._set_filter(link, match)
        if self.level == NET_CLS:
            set_classids(self.directory, ROOT | self.minor)
        if has_tcx():
            taps_of(link.identity).add(self.minor, match)

    def _set_filter(self, link: Link, match: PacketMatch) -> None:
        program = classifiers.load_program(classifiers.classifier_program(match, self.minor))
        try:
            link.set_filter(self.minor, self._preference, program, _name(match))
        finally:
            os.close(program)

    def _remove(self, link: Link, *, is_ours: bool) -> None:
        taps_of(link.identity).remove(self.minor)
        if self.level == NET_CLS:
            clear_classids(self.directory, ROOT | self.minor)
        if not is_ours:
            return
        if not link.classes().keys() - {self.minor}:
            link.remove_root()
            return
        link.remove_filter(self.minor, self._preference)
        link.remove_class(self.minor)
        link.set_default_class(self.link_rate)

    @property
    def _preference(self) -> int:
        """Filter preference: those of deeper cgroups come first."""
        return _LOWEST_PREFERENCE - self.level

    def _match(self) -> PacketMatch | None:
        """Match of the cgroup's packets; None if it is gone."""
        try:
            inode = self.directory.stat().st_ino
        except FileNotFoundError:
            return None
        return ClassidMatch(ROOT | self.minor) if self.level == NET_CLS else CgroupMatch(inode, self.level)


def _name(match: PacketMatch) -> str:
    return f"koord-{match.cgroup_id}" if isinstance(match, CgroupMatch) else "koord"
