"""What the plugin reads of the host for a container that starts: what its pod's cgroup has."""

from api.cgroup_path import ROOT, lineage
from api.cpuset import parse_cpuset
from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.nri.bounds import PodBounds
from koordlet.strategies.cpuquota import parse_quota


def pod_bounds(knobs: Knobs, path: str) -> PodBounds:
    """Return the CPUs of a cgroup, and the least quota of it and of those above; what cannot be read is not known."""
    cpus = None
    try:
        cpus = parse_cpuset(current(knobs, Knob.CPUSET_CPUS, path)) or None
    except (Unsupported, CgroupGone, OSError, ValueError):
        cpus = None
    quotas = (_quota(knobs, above) for above in lineage(path) if above != ROOT)
    return PodBounds(cpus, min((quota for quota in quotas if quota is not None), default=None))


def _quota(knobs: Knobs, path: str) -> int | None:
    try:
        return parse_quota(current(knobs, Knob.CPU_MAX, path))
    except (Unsupported, CgroupGone, OSError, ValueError):
        return None
