"""The knobs of one host: from a knob, a target and a value to the attributes it sets, on cgroup v1, hybrid and v2.

Knobs are spoken in the syntax of cgroup v2. In another hierarchy a cgroup has the same path below the mount.
"""

from pathlib import Path

from api.cgroup_path import path_text, raw_path
from api.intents import Knob
from koordlet.host.attributes import ResourceGroup
from koordlet.host.cgroups.controllers import Assignment, CgroupGone, ControllerDirectories
from koordlet.host.files import HostTree
from koordlet.host.knobs.spec import KnobHost
from koordlet.host.knobs.table import KNOBS
from koordlet.host.knobs.traffic import TrafficKnob, TrafficLink
from koordlet.host.resctrl_groups import group_directory

__all__ = ["Assignment", "CgroupGone", "Knobs"]

RESCTRL_MOUNT = "/sys/fs/resctrl"


class Knobs:
    """Translates for one host. `resctrl` is where resctrl is mounted, `traffic` the link that has traffic classes."""

    def __init__(self, tree: HostTree, resctrl: Path | None = None, traffic: TrafficLink | None = None) -> None:
        self._directories = directories = ControllerDirectories(tree)
        self.resctrl = resctrl or tree.path(RESCTRL_MOUNT)
        traffic_knob = TrafficKnob(tree, directories, traffic or TrafficLink())
        self._host = KnobHost(tree, directories, self.resctrl, traffic_knob)

    def assignments(self, knob: Knob, target: str, value: str) -> tuple[Assignment, ...]:
        """The attributes to set, each with its text, in no particular order.

        Raises Unsupported where the host has no such knob, CgroupGone where it has no such cgroup, and ValueError
        for a value or target that is none.
        """
        if ".." in raw_path(target).split("/"):
            raise ValueError(f"target {target!r} leaves its hierarchy")
        spec = KNOBS[knob]
        return spec.assign(self._host, spec, target, value)

    def directory(self, controller: str, target: str) -> Path:
        """The target's directory in the controller's hierarchy; raises Unsupported or CgroupGone."""
        return self._directories.directory(controller, target)

    def is_v1(self, controller: str) -> bool:
        """Return whether the controller has a v1 hierarchy."""
        return self._directories.is_v1(controller)

    def has_resctrl(self) -> bool:
        """Return whether resctrl is mounted."""
        return (self.resctrl / "schemata").exists()

    def group(self, name: str) -> ResourceGroup:
        """The control group of that name."""
        return ResourceGroup(path_text(str(group_directory(self.resctrl, name))))
