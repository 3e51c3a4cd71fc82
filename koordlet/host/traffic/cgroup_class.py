"""The traffic class of one cgroup, in all its parts: HTB on the link, the class, its filter, and v1's marks.

The parts are made in that order and removed in the opposite one, the root with the last class. So what a killed agent
left is always told apart from what is whole, and can be taken away by another one.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from koordlet.host.files import HostError
from koordlet.host.traffic import classifiers as traffic_programs
from koordlet.host.traffic.classes import ROOT, Traffic, parse_traffic
from koordlet.host.traffic.classifiers import OfCgroup, OfMark, Test
from koordlet.host.traffic.net_cls import clear_marks, mark_of, set_marks
from koordlet.host.traffic.qdisc import DEFAULT, OURS, Link, link_identity, look_at
from koordlet.host.traffic.veth_taps import can_tap, taps_of

NONE = "none"
BARE = "bare"
"""Our root without any class: an agent died between the two."""
MARKED = 0
"""In place of a level: the cgroup is in v1's net_cls hierarchy."""
_LAST_TURN = 1000


@dataclass(frozen=True, slots=True)
class CgroupTraffic:
    """`level` is the depth of `directory` in the unified hierarchy, or MARKED."""

    directory: Path
    device: str
    minor: int
    level: int
    link_rate: int
    """Bytes per second."""

    def read(self) -> frozenset[str] | None:
        """The class as `rate= ceil= prio=`, `none`, both where it does not take all the cgroup's packets, `bare`, or
        what somebody else set on the link; None if there is no such interface."""
        identity = link_identity(self.device)
        if identity is None:
            return None
        standing = look_at(self.device, identity)
        if standing.root != OURS:
            return frozenset((NONE if standing.root == DEFAULT else standing.root,))
        classes = standing.classes
        if self.minor not in classes:
            return frozenset((NONE if classes else BARE,))
        found = {str(classes[self.minor])}
        return frozenset(found if self._is_filled(standing.filters.get(self.minor), identity) else found | {NONE})

    def _is_filled(self, name: str | None, identity: str) -> bool:
        """Whether the cgroup's packets go there; so too where the cgroup is no more."""
        test = self._test()
        if name is None or test is None:
            return name is not None
        if self.level == MARKED and mark_of(self.directory) == 0:
            return False
        return name == _name(test) and (not can_tap() or taps_of(identity).has(self.minor, test))

    def write(self, value: str) -> None:
        """Make it or change it, or remove it for a value that is no class. Raises HostError."""
        with Link(self.device) as link:
            root = link.root()
            if value in (NONE, BARE):
                self._remove(link, is_ours=root == OURS)
            elif root not in (DEFAULT, OURS):
                raise HostError(self.device, "queue by class on", errno.EBUSY, f"somebody else set {root}")
            else:
                self._make(link, parse_traffic(value, self.link_rate))

    def _make(self, link: Link, traffic: Traffic) -> None:
        link.make_root(self.link_rate)
        link.set_class(self.minor, traffic)
        link.promise_rest(self.link_rate)
        test = self._test()
        if test is None:
            raise HostError(self.directory, "stat", errno.ENOENT)
        self._fill(link, test)
        if self.level == MARKED:
            set_marks(self.directory, ROOT | self.minor)
        if can_tap():
            taps_of(link.identity).add(self.minor, test)

    def _fill(self, link: Link, test: Test) -> None:
        program = traffic_programs.load(traffic_programs.classifier(test, self.minor))
        try:
            link.set_filter(self.minor, self._turn, program, _name(test))
        finally:
            os.close(program)

    def _remove(self, link: Link, *, is_ours: bool) -> None:
        taps_of(link.identity).remove(self.minor)
        if self.level == MARKED:
            clear_marks(self.directory, ROOT | self.minor)
        if not is_ours:
            return
        if not link.classes().keys() - {self.minor}:
            link.remove_root()
            return
        link.remove_filter(self.minor, self._turn)
        link.remove_class(self.minor)
        link.promise_rest(self.link_rate)

    @property
    def _turn(self) -> int:
        """Cgroups further down are asked for first."""
        return _LAST_TURN - self.level

    def _test(self) -> Test | None:
        """What tells the cgroup's packets; None if it is gone."""
        try:
            inode = self.directory.stat().st_ino
        except FileNotFoundError:
            return None
        return OfMark(ROOT | self.minor) if self.level == MARKED else OfCgroup(inode, self.level)


def _name(test: Test) -> str:
    return f"koord-{test.cgroup_id}" if isinstance(test, OfCgroup) else "koord"
