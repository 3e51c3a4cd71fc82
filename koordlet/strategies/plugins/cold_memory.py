"""Reclaim of cold memory: a little at a time, and less the more the group stalls on memory.

The step is that of Katalyst's reclaim: usage times percent times the distance to the tolerated pressure.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.intents import Intent
from api.qos import QoSClass
from koordlet.strategies.sampling import Samples
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, NodeView


class ColdMemorySettings(StrategySettings, frozen=True):
    """extensions.coldMemory."""

    enable: bool = False
    classes: tuple[Literal["BE", "LS"], ...] = field(default=("BE",), name="qosClasses")
    """Classes that memory is taken from; never from protected pods."""
    interval_seconds: Annotated[int, Meta(ge=5, le=3600)] = 30
    step_percent: Annotated[int, Meta(ge=1, le=10)] = 1
    """Percent of usage taken in one step at no pressure."""
    pressure_percent: Annotated[int, Meta(ge=1, le=100)] = 10
    """Share of the interval with a task stalled on memory from which nothing is taken."""


class ColdMemory(Strategy[ColdMemorySettings]):
    """Reclaim from pods that do not stall; nothing where pressure or usage is not measured.

    Reads: memory usage and pressure
    Intents: reclaims
    Default: off, 1 % each 30 s
    Source: Katalyst
    """

    section: ClassVar[str] = "extensions.coldMemory"
    settings_type = ColdMemorySettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True, "qosClasses": ["BE", "LS"], "intervalSeconds": 5}
    repeats: ClassVar[bool] = True

    def __init__(self, settings: ColdMemorySettings | None = None, features: Mapping[str, bool] | None = None) -> None:
        super().__init__(settings, features)
        self._next: dict[str, float] = {}
        self._pressure: dict[str, Samples] = {}

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """Those of `qosClasses`."""
        return frozenset(QoSClass(name) for name in self.settings.classes)

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return one reclaim for each pod and interval, the first one interval after the pod was first seen."""
        if not self.settings.enable:
            return []
        pods = {pod.path: pod for pod in view.pods if self._is_selected(pod)}
        self._next = {path: self._next.get(path, now + self.settings.interval_seconds) for path in pods}
        self._pressure = {path: self._pressure.get(path, Samples()) for path in pods}
        intents: list[Intent] = []
        for path, pod in pods.items():
            self._pressure[path].forget(now, self.settings.interval_seconds)
            if pod.memory_pressure_ratio is not None:
                self._pressure[path].add(now, self.settings.interval_seconds, pod.memory_pressure_ratio)
            if now < self._next[path]:
                continue
            self._next[path] = now + self.settings.interval_seconds
            pressure = next(iter(self._pressure[path].means()), None)
            amount = step_bytes(pod, pressure, self.settings) // view.node.page_bytes * view.node.page_bytes
            if amount:
                reason = f"it stalls {100 * (pressure or 0):.1f} percent of the time on memory"
                intents.append(self.reclaim(path, amount, reason))
        return intents

    def _is_selected(self, pod: Group) -> bool:
        chosen = pod.effective_qos in {QoSClass(name) for name in self.settings.classes}
        return chosen and pod.active and not pod.protected


def step_bytes(pod: Group, pressure_ratio: float | None, settings: ColdMemorySettings) -> int:
    """Return the bytes to take in one step; 0 where usage or pressure is not known."""
    if pod.memory_bytes is None or pressure_ratio is None:
        return 0
    calm = max(1 - pressure_ratio * 100 / settings.pressure_percent, 0.0)
    return int((pod.memory_bytes + (pod.cache_bytes or 0)) * calm * settings.step_percent / 100)
