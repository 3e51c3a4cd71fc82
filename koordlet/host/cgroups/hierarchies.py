"""Mount points of the cgroup controllers: v1, hybrid and v2 behind one value."""

from dataclasses import dataclass
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.files import HostTree


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Mount points by controller. On v2 they are all the unified mount; absent controllers are None."""

    cpu: Path
    cpuacct: Path | None
    memory: Path | None
    io: Path | None
    unified: Path | None
    version: int
    """Cgroup version of the cpu controller: 1 or 2."""

    @property
    def hybrid(self) -> bool:
        """True when the cpu controller is on v1 and a v2 tree is mounted beside it."""
        return self.version == 1 and self.unified is not None


def find_hierarchies(host: HostTree) -> Hierarchies:
    """Read /proc/self/mountinfo. Raises Unsupported when no cpu controller is mounted anywhere."""
    v1, unified = find_mounts(host)
    if "cpu" in v1:
        return Hierarchies(v1["cpu"], v1.get("cpuacct"), v1.get("memory"), v1.get("blkio"), unified, 1)
    if unified is None:
        raise Unsupported("no cgroup file system with a cpu controller is mounted", "mount cgroup2 on /sys/fs/cgroup")
    return Hierarchies(unified, unified, unified, unified, unified, 2)


def find_mounts(host: HostTree) -> tuple[dict[str, Path], Path | None]:
    """Mount point of each v1 controller by its name, and of the unified hierarchy if there is one."""
    v1: dict[str, Path] = {}
    unified: Path | None = None
    for line in (host.text("/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        words = before.split()
        if len(words) < 5:
            continue
        point = host.path(words[4].replace("\\040", " "))
        if kind == "cgroup2" and unified is None:
            unified = point
        elif kind == "cgroup":
            for controller in options.rpartition(" ")[2].split(","):
                v1.setdefault(controller, point)
    return v1, unified
