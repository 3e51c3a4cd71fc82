"""CPU caps on single pods that are lowered and raised step by step."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from api.kube.resources import CPU
from koordlet.strategies.strategy import StrategySettings
from koordlet.strategies.view import Group, NodeView

Percent = Annotated[int, Meta(ge=1, le=100)]


class CpuThrottle(StrategySettings, frozen=True):
    """Depth and speed of throttling a pod."""

    min_cpu_ratio: Percent = msgspec.field(default=10, name="minCPURatio")
    """Percent of the limit, or without one of usage at the start; no pod gets less, nor less than it requests."""
    step_cpu_ratio: Percent = msgspec.field(default=10, name="stepCPURatio")
    """Percent of the present cap, each step."""


@dataclass(slots=True)
class Caps:
    """Caps of throttled pods in millicores, and their first values."""

    now: dict[str, int] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)

    def lower(self, pod: Group, throttle: CpuThrottle) -> int:
        """Lower a pod's cap by one step, not below its floor; returns the millicores that this takes from present
        usage."""
        used = int(pod.cpu_millicores or 0)
        if pod.path not in self.now:
            self.start[pod.path] = self.now[pod.path] = pod.limits.get(pod.cpu_name) or max(used, 1)
        before = min(used, self.now[pod.path])
        floor = max(self.start[pod.path] * throttle.min_cpu_ratio // 100, pod.requests.get(CPU, 0), 1)
        stepped = self.now[pod.path] * (100 - throttle.step_cpu_ratio) // 100
        self.now[pod.path] = max(min(stepped, self.start[pod.path]), min(floor, self.now[pod.path]))
        return max(before - self.now[pod.path], 0)

    def lower_until(self, pods: Iterable[Group], throttle: CpuThrottle, target: int) -> None:
        """Lower one pod after another by one step, until so many millicores are taken."""
        freed = 0
        for pod in pods:
            if freed >= target:
                return
            freed += self.lower(pod, throttle)

    def raise_all(self, throttle: CpuThrottle) -> None:
        """Raise all caps by one step; those back at their first value are removed."""
        for path, cap in list(self.now.items()):
            self.now[path] = cap + max(cap * throttle.step_cpu_ratio // 100, 1)
            if self.now[path] >= self.start[path]:
                del self.now[path], self.start[path]

    def keep(self, paths: set[str]) -> None:
        """Forget pods that are gone."""
        self.now = {path: cap for path, cap in self.now.items() if path in paths}
        self.start = {path: start for path, start in self.start.items() if path in paths}


def capped(view: NodeView, pod: Group, cap_millicores: int) -> Iterator[tuple[str, int]]:
    """Yield the quota of a capped pod, and of its containers with a limit above the cap, in millicores.

    Cgroup v1 refuses the quota of a cgroup below which another one has more.
    """
    yield pod.path, cap_millicores
    for container in view.containers(pod):
        if container.limits.get(CPU, 0) > cap_millicores:
            yield container.path, cap_millicores
