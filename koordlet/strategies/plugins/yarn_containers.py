"""Containers of Hadoop YARN: their frame has the limits of best-effort pods, and they give memory back in cost order.

The frame is the cgroup of the host application, with a cgroup for each container. Below the kubelet's best-effort
directory it is limited with it by the kernel; elsewhere it gets the same values.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.cgroup_path import is_within, parent
from api.intents import Intent, Knob, Strength
from api.qos import QoSClass, QoSSource
from koordlet.strategies.eviction_order import Percent, Threshold, leaving, stop_level
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, GroupKind, KubeQoS, NodeView

CONTAINER = re.compile(r"container_(?:e\d+_)?\d+_\d+_\d+_(\d+)")
"""Identifier of a container of YARN; the application's master is the first of its attempt."""
_NOT_NAMED = (QoSSource.SETTINGS, QoSSource.KUBERNETES)
"""Origins of classes of cgroups that the NodeSLO does not name: such a name proves nothing, its maker chose it."""
LIMITS = (Knob.CPU_MAX, Knob.CPUSET_CPUS)


class YarnContainersSettings(StrategySettings, frozen=True):
    """Table `extensions.yarn_containers`."""

    enable: bool = False
    application: str = "hadoop-yarn"
    """Name of the host application."""
    threshold_percent: Threshold = field(default=68, name="memoryEvictThresholdPercent")
    """Percent of the node's memory used from which containers are ended: below that of best-effort pods, since their
    framework starts them elsewhere."""
    lower_percent: Percent | None = field(default=None, name="memoryEvictLowerPercent")
    """Level at which to stop; two below the threshold where unset."""
    grace_seconds: Annotated[float, Meta(ge=0, le=300)] = 1.0
    """Time between SIGTERM and SIGKILL."""

    def __post_init__(self) -> None:
        stop_level(self.threshold_percent, self.lower_percent, "memoryEvictLowerPercent")


class YarnContainers(Strategy[YarnContainersSettings]):
    """Limits of the best-effort directory on a frame elsewhere, and the end of containers when memory is short.

    First goes the container that loses least work for each byte that it gives back: CPU time spent since it was first
    seen over memory. Masters of applications go last, since all containers of theirs end with them.

    Reads: limits of the best-effort directory; memory of the node; memory and CPU usage of the application's containers
    Intents: `cpu.max` and `cpuset.cpus` of the frame; evictions of containers
    Default: off, 68 %
    Source: here
    """

    settings_type = YarnContainersSettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True}
    repeats: ClassVar[bool] = True

    def __init__(
        self, settings: YarnContainersSettings | None = None, features: Mapping[str, bool] | None = None
    ) -> None:
        super().__init__(settings, features)
        self._spent: dict[str, float] = {}
        """CPU time by container, in core-milliseconds."""

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the limits of frames that need them, and the containers to end, in their order."""
        if not self.settings.enable:
            return []
        frames = [
            app
            for app in view.host_apps
            if app.name == self.settings.application
            and app.effective_qos is QoSClass.BE
            and app.qos_source not in _NOT_NAMED
        ]
        if not frames:
            named = f"the host application {self.settings.application} of the NodeSLO"
            self.problems["application"] = f"no cgroup of class BE is {named}"
            return []
        paths = {frame.path for frame in frames}
        containers = [group for group in view.groups if parent(group.path) in paths and _number(group) is not None]
        self._count(containers, view.interval_seconds)
        return [*self._limits(view, frames), *self._ended(view, containers, now)]

    def _count(self, containers: Iterable[Group], seconds: float) -> None:
        self._spent = {
            each.path: self._spent.get(each.path, 0.0) + (each.cpu_millicores or 0.0) * seconds for each in containers
        }

    def _limits(self, view: NodeView, frames: Iterable[Group]) -> list[Intent]:
        directory = view.qos_dir(KubeQoS.BEST_EFFORT)
        if directory is None:
            return []
        return [
            self.set_knob(frame.path, knob, value, f"as {directory.path} has it", Strength.HARD)
            for frame in frames
            if not is_within(frame.path, directory.path)
            for knob in LIMITS
            if (value := directory.knobs.get(knob, "")) and not value.startswith("max")
        ]

    def _ended(self, view: NodeView, containers: list[Group], now: float) -> list[Intent]:
        if view.memory_bytes is None:
            self.stay_silent("memory", "the node's memory is not measured")
            return []
        percent = view.memory_bytes * 100 // view.node.memory_bytes
        if percent < self.settings.threshold_percent:
            return []
        level = stop_level(self.settings.threshold_percent, self.settings.lower_percent, "")
        release = view.node.memory_bytes * (percent - level) // 100
        ending = leaving(view, now)
        passed = ending | view.evictions_refused
        release -= sum(each.memory_bytes or 0 for each in (*view.pods, *containers) if each.path in ending)
        why = f"the node uses {percent} percent of its memory, the threshold is {self.settings.threshold_percent}"
        intents: list[Intent] = []
        for each in sorted(containers, key=self._order):
            if release <= 0:
                break
            if not each.memory_bytes or each.protected or each.path in passed:
                continue
            release -= each.memory_bytes
            lost = self._spent[each.path] / 1e3
            reason = f"{why}; it gives {each.memory_bytes >> 20} MiB back and loses {lost:.1f} core-seconds of work"
            intents.append(self.evict(each.path, reason, self.settings.grace_seconds))
        return intents

    def _order(self, container: Group) -> tuple[bool, float, int, str]:
        memory = container.memory_bytes or 1
        return _number(container) == 1, self._spent[container.path] / memory, -memory, container.path


def _number(group: Group) -> int | None:
    """Return the number of a container of YARN in its attempt; None for another cgroup."""
    found = CONTAINER.fullmatch(group.path.rpartition("/")[2]) if group.kind is GroupKind.HOST_APP else None
    return int(found[1]) if found else None
