"""The traffic class of one cgroup, in all its parts: HTB on the link, the class, its filter, and v1's marks.

The parts are made in that order and removed in the opposite one, the root with the last class. So what a killed agent
left is always told apart from what is whole, and can be taken away by another one.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from koordlet.host import traffic_programs
from koordlet.host.traffic import ROOT, Traffic, parse_traffic
from koordlet.host.traffic_link import DEFAULT, OURS, Link, link_identity, look_at
from koordlet.host.traffic_marks import clear_marks, mark_of, set_marks
from koordlet.host.tree import HostError

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
        return frozenset(found if self._is_filled(standing.filters.get(self.minor)) else found | {NONE})

    def _is_filled(self, name: str | None) -> bool:
        """Whether the cgroup's packets go there; so too where the cgroup is no more."""
        if name is None:
            return False
        if self.level == MARKED:
            return mark_of(self.directory) != 0
        cgroup_id = self._cgroup_id()
        return cgroup_id is None or name == _name(cgroup_id)

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
        if self.level == MARKED:
            self._fill(link, traffic_programs.of_mark(ROOT | self.minor), "koord")
            set_marks(self.directory, ROOT | self.minor)
            return
        cgroup_id = self._cgroup_id()
        if cgroup_id is None:
            raise HostError(self.directory, "stat", errno.ENOENT)
        self._fill(link, traffic_programs.of_cgroup(cgroup_id, self.level), _name(cgroup_id))

    def _fill(self, link: Link, instructions: bytes, name: str) -> None:
        program = traffic_programs.load(instructions)
        try:
            link.set_filter(self.minor, self._turn, program, name)
        finally:
            os.close(program)

    def _remove(self, link: Link, *, is_ours: bool) -> None:
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

    def _cgroup_id(self) -> int | None:
        try:
            return self.directory.stat().st_ino
        except FileNotFoundError:
            return None


def _name(cgroup_id: int) -> str:
    return f"koord-{cgroup_id}"
