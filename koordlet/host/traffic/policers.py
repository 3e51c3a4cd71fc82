"""The policer of a cgroup: in the unified hierarchy on the cgroup itself, in those of v1 on the veths of its pods."""

from pathlib import Path

from koordlet.host.traffic.ingress import CgroupPolicer
from koordlet.host.traffic.veth_policer import VethPolicer


def policer_of(directory: Path) -> CgroupPolicer | VethPolicer:
    """Return the policer of a cgroup, also of one that is gone."""
    present = next((one for one in (directory, *directory.parents) if one.is_dir()), directory)
    return VethPolicer(directory) if (present / "tasks").exists() else CgroupPolicer(directory)
