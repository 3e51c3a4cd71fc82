"""Present values of knobs, in the syntax of cgroup v2 whatever the host has."""

from api.intents import Knob
from koordlet.host.knobs.knobs import Knobs


def current(knobs: Knobs, knob: Knob, target: str) -> str:
    """`cpu.max` or `cpuset.cpus` of a cgroup.

    Raises Unsupported, CgroupGone, OSError, and ValueError for other knobs.
    """
    if knob is Knob.CPUSET_CPUS:
        return (knobs.directory("cpuset", target) / "cpuset.cpus").read_text().strip()
    if knob is not Knob.CPU_MAX:
        raise ValueError(f"{knob} is not read here")
    directory = knobs.directory("cpu", target)
    unified = directory / "cpu.max"
    if unified.exists():
        return unified.read_text().strip()
    quota = int((directory / "cpu.cfs_quota_us").read_text())
    period = int((directory / "cpu.cfs_period_us").read_text())
    return f"{quota if quota > 0 else 'max'} {period}"
