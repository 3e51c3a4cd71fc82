"""Kernel settings of the whole node, each only where it is configured; min_free_kbytes by Koordinator's formula."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.intents import Intent, Knob
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import NodeView

Switch = Annotated[int, Meta(ge=0, le=1)]


class SystemTunablesSettings(StrategySettings, frozen=True):
    """systemStrategy; unset fields are left alone."""

    min_free_kbytes_factor: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Ten-thousandths of memory that the kernel keeps free; recommended 100. More than 1000 would starve the node."""
    watermark_scale_factor: Annotated[int, Meta(ge=1, le=400)] | None = None
    """Ten-thousandths of memory between the kernel's watermarks; recommended 150."""
    memcg_reap_back_ground: Switch | None = None
    sched_group_identity_enabled: Switch | None = None
    sched_idle_saver_wmark: Annotated[int, Meta(ge=0)] | None = None
    page_cache_limit_enabled: Switch | None = None
    sched_features: dict[Annotated[str, Meta(pattern="^[A-Z0-9_]+$")], bool] = field(default_factory=dict)


_SYSCTLS = {
    "watermark_scale_factor": "vm/watermark_scale_factor",
    "memcg_reap_back_ground": "memcg_reaper/reap_background",
    "sched_group_identity_enabled": "kernel/sched_group_identity_enabled",
    "sched_idle_saver_wmark": "kernel/sched_idle_saver_wmark",
    "page_cache_limit_enabled": "pagecache_limit/enabled",
}


class SystemTunables(Strategy[SystemTunablesSettings]):
    """Sysctls and scheduler features of the node.

    Reads: size of memory
    Intents: sysctls, scheduler features
    Default: unset, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "systemStrategy"
    features: ClassVar[Mapping[str, bool]] = {"SystemConfig": False}
    settings_type = SystemTunablesSettings
    example: ClassVar[Mapping[str, Any]] = {
        "minFreeKbytesFactor": 100,
        "watermarkScaleFactor": 150,
        "schedFeatures": {"X": True},
    }

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick."""
        if not self.gates["SystemConfig"]:
            return []
        values = {name: getattr(self.settings, attribute) for attribute, name in _SYSCTLS.items()}
        factor = self.settings.min_free_kbytes_factor
        values["vm/min_free_kbytes"] = None if factor is None else min_free_kbytes(view.node.memory_bytes, factor)
        intents: list[Intent] = [
            self.set_knob(name, Knob.SYSCTL, str(value), "configured for the node")
            for name, value in values.items()
            if value is not None
        ]
        for name, on in self.settings.sched_features.items():
            intents.append(self.set_knob(name, Knob.SCHED_FEATURE, str(int(on)), "configured for the node"))
        return intents


def min_free_kbytes(memory_bytes: int, factor: int) -> int:
    """Return this many ten-thousandths of memory, in KiB."""
    return memory_bytes // 1024 * factor // 10_000
