"""Directory of a cgroup in the hierarchy of each controller."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from api.cgroup_path import raw_path
from api.plugin import Unsupported
from koordlet.host.attributes import Attribute
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree

_V1_NAMES = {"io": "blkio"}


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attribute and the canonical text that it is to hold."""

    attribute: Attribute
    value: str
    by_kernel: bool = False
    """The kernel sets it as a side effect of another assignment: it is restored, but never set."""
    also: tuple[str, ...] = ()
    """Further texts that the kernel leaves there by itself when the other assignment is restored."""


class CgroupGone(Exception):
    """The target is no cgroup any more."""


class ControllerDirectories:
    """Directories of cgroups by controller: on a hybrid host one may be on v1 and another on v2."""

    def __init__(self, tree: HostTree) -> None:
        self.tree = tree
        self._v1, self._unified = find_mounts(tree)

    def is_v1(self, controller: str) -> bool:
        """Return whether the controller has a v1 hierarchy."""
        return _V1_NAMES.get(controller, controller) in self._v1

    def directory(self, controller: str, target: str) -> Path:
        """The target's directory in the controller's hierarchy.

        Raises Unsupported, CgroupGone, and ValueError for a target that is no path.
        """
        mount, below = self._mount(controller), raw_path(target).strip("/")
        directory = _joined(mount, below)
        if not os.path.isdir(directory):
            elsewhere = self._mount("cpu") / below
            if os.path.isdir(elsewhere):
                raise Unsupported(f"{target} is not in the {controller} hierarchy", f"make it below {mount}")
            raise CgroupGone(target)
        return directory

    def _mount(self, controller: str) -> Path:
        mount = self._v1.get(_V1_NAMES.get(controller, controller), self._unified)
        if mount is None:
            raise Unsupported(f"no hierarchy has the {controller} controller", f"mount the {controller} controller")
        return mount


@lru_cache(maxsize=4096)
def _joined(mount: Path, below: str) -> Path:
    """A path; every tick asks for those of all cgroups that have settings, and putting them together takes longer than
    to look whether they are there."""
    return mount / below
