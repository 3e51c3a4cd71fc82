"""What the plugin reads of the host for a container that starts: what its pod's cgroup has."""

from api.cpuset import parse_cpuset
from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.nri.bounds import PodBounds
from koordlet.strategies.cpuquota import parse_quota


def pod_bounds(knobs: Knobs, path: str) -> PodBounds:
    """Return the CPUs and the quota of a cgroup; what cannot be read is not known."""
    cpus = quota = None
    try:
        cpus = parse_cpuset(current(knobs, Knob.CPUSET_CPUS, path)) or None
    except (Unsupported, CgroupGone, OSError, ValueError):
        cpus = None
    try:
        quota = parse_quota(current(knobs, Knob.CPU_MAX, path))
    except (Unsupported, CgroupGone, OSError, ValueError):
        quota = None
    return PodBounds(cpus, quota)
