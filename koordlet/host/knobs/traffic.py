"""The `net.class` and `net.ingress` knobs of a host: interface, its rate, and the match of a cgroup's packets."""

from dataclasses import dataclass
from pathlib import Path

from api.cgroup_path import path_text, raw_path
from api.plugin import Unsupported
from koordlet.host.attributes import IngressPolicer, TrafficClass
from koordlet.host.cgroups.controllers import Assignment, ControllerDirectories
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.cgroups.processes import pids_below
from koordlet.host.files import HostTree
from koordlet.host.traffic import classifiers, ingress, veth_policer
from koordlet.host.traffic.cgroup_class import BARE, NET_CLS
from koordlet.host.traffic.classes import choose_minor, default_interface, parse_traffic
from koordlet.host.traffic.net_cls import classid_of, is_foreign
from koordlet.host.traffic.qdisc import DEFAULT, OURS, Link
from koordlet.host.traffic.veth_taps import has_tcx

_BITS_PER_MEGABIT = 1_000_000
_MANY = 4096
_PIDS_LOOKED_AT = 256


@dataclass(frozen=True, slots=True)
class TrafficLink:
    """Interface and rate; an empty or zero field is read from the host."""

    device: str = ""
    bits_per_second: int = 0
    is_allowed: bool = True
    may_police: bool = True


class TrafficKnob:
    """Traffic classes of cgroups; each keeps its minor number."""

    def __init__(self, tree: HostTree, directories: ControllerDirectories, link: TrafficLink) -> None:
        self._tree = tree
        self._directories = directories
        self._link = link
        self._minors: dict[str, int] = {}

    def assignments(self, target: str, value: str) -> tuple[Assignment, ...]:
        """The one attribute. Raises Unsupported, CgroupGone, ValueError and HostError as `Knobs.assignments`."""
        if not self._link.is_allowed:
            raise Unsupported("traffic classes replace the queue of the link", "set [enforcer] network_classes = true")
        device = self._link.device or self._default_device()
        directory, level = self._locate(target)
        unsupported = classifiers.missing_support(by_classid=level == NET_CLS)
        if unsupported is not None:
            raise unsupported
        self._check_namespace(target, directory)
        link_rate = self._link_rate(device)
        with Link(device) as link:
            root = link.root()
            if root not in (DEFAULT, OURS):
                raise Unsupported(f"another program set {root} on {device}", f"tc qdisc del dev {device} root")
            present = link.classes() if root == OURS else {}
        traffic = parse_traffic(value, link_rate)
        minor = self._minor(target, set(present))
        attribute = TrafficClass(path_text(str(directory)), device, minor, level, link_rate)
        return (Assignment(attribute, str(traffic), also=(BARE,)),)

    def policers(self, target: str, value: str) -> tuple[Assignment, ...]:
        """The one attribute of `net.ingress`. Raises as `assignments`."""
        if not self._link.may_police:
            raise Unsupported("packets that arrive may not be dropped", "set [enforcer] network_policing = true")
        names = [name for name in raw_path(target).split("/") if name]
        if not names:
            raise ValueError("the root cgroup is not policed: that would be the link itself")
        unified = find_mounts(self._tree)[1]
        directory = None if unified is None else unified.joinpath(*names)
        unsupported = ingress.missing_support()
        if directory is None or not directory.is_dir():
            directory = self._directories.directory("cpu", target)
            unsupported = unsupported or veth_policer.why_not(directory)
        if unsupported is not None:
            raise unsupported
        return (Assignment(IngressPolicer(path_text(str(directory))), value),)

    def _default_device(self) -> str:
        routes, routes6 = (self._tree.text(f"/proc/self/net/{name}") or "" for name in ("route", "ipv6_route"))
        found = default_interface(routes, routes6)
        if found is None:
            raise Unsupported("there is no default route", "name the link in [enforcer] network_interface")
        return found

    def _locate(self, target: str) -> tuple[Path, int]:
        """Directory in the hierarchy that packets can be matched by, and the cgroup's depth there."""
        names = [name for name in raw_path(target).split("/") if name]
        if not names:
            raise ValueError("the root cgroup has no class: traffic without a class is the default class")
        v1, unified = find_mounts(self._tree)
        for mount, level in ((v1.get("net_cls"), NET_CLS), (unified, len(names))):
            if mount is not None and (directory := mount.joinpath(*names)).is_dir():
                classid = classid_of(directory) if level == NET_CLS else 0
                if classid and is_foreign(classid):
                    raise Unsupported(
                        f"{target} has the net_cls.classid {classid:#x} of another program", "set it to 0"
                    )
                return directory, level
        self._directories.directory("cpu", target)
        raise Unsupported(
            f"packets of {target} cannot be matched: it is neither in a net_cls nor in the unified hierarchy",
            "boot with cgroup v2, or mount net_cls and let the container runtime use it",
        )

    def _check_namespace(self, target: str, directory: Path) -> None:
        """Raise Unsupported for a cgroup in another network namespace where the kernel has no tcx for its packets."""
        if has_tcx():
            return
        own = _namespace(self._tree.path("/proc/self"))
        pids = sorted(pids_below(directory))[:_PIDS_LOOKED_AT]
        found = {_namespace(self._tree.path(f"/proc/{pid}")) for pid in pids} - {None}
        if found and own not in found:
            raise Unsupported(
                f"{target} has a network namespace of its own, out of which packets come without their cgroup",
                "needs Linux 6.6 or later; or limit it with the network plugin's bandwidth annotations",
            )

    def _link_rate(self, device: str) -> int:
        """Bytes per second."""
        if self._link.bits_per_second:
            return self._link.bits_per_second // 8
        try:
            megabits = int(self._tree.text(f"/sys/class/net/{device}/speed") or "-1")
        except (OSError, ValueError):
            megabits = -1
        if megabits <= 0:
            raise Unsupported(f"{device} does not report its speed", "set [enforcer] network_bits_per_second")
        return megabits * _BITS_PER_MEGABIT // 8

    def _minor(self, target: str, present: set[int]) -> int:
        if target not in self._minors:
            if len(self._minors) >= _MANY:
                self._minors = {path: minor for path, minor in self._minors.items() if minor in present}
            self._minors[target] = choose_minor(target, present | set(self._minors.values()))
        return self._minors[target]


def _namespace(process: Path) -> int | None:
    try:
        return (process / "ns/net").stat().st_ino
    except OSError:
        return None
