"""Rungs for caches and memory bandwidth: resource groups of resctrl."""

from api.intents import Intent, Knob, Strength
from koordlet.response.host_capabilities import BANDWIDTH_EIGHTHS_GB, CacheCapabilities
from koordlet.response.observation import Observation
from koordlet.response.rungs.eviction import EVICT
from koordlet.response.rungs.rung import Build, Interference, Rung, setting
from koordlet.response.settings import ResponseSettings


def _cache_part(percent: int) -> Build:
    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        text = schemata(observation.capabilities.caches, percent)
        if not text:
            return ()
        group = f"koord-squeezed-{percent}"
        return (
            setting(interference, settings, Strength.MILD, Knob.RESCTRL_SCHEMATA, at=group, value=text),
            setting(interference, settings, Strength.MILD, Knob.RESCTRL_GROUP, at=interference.culprit, value=group),
        )

    return build


def schemata(caches: CacheCapabilities, percent: int) -> str:
    """Return the lines of a resource group with this share of each cache and of the memory bandwidth; "" with neither.

    The lowest contiguous bits, at least as many as the hardware asks for; bandwidth rounded up to its granularity
    (Documentation/filesystems/resctrl.rst).
    """
    lines = []
    for name, domains, mask, least in (
        ("L3", caches.l3_domains, caches.l3_mask, caches.l3_least_bits),
        ("L2", caches.l2_domains, caches.l2_mask, caches.l2_least_bits),
    ):
        if domains:
            bits = max(mask.bit_count() * percent // 100, least, 1)
            lowest = mask & -mask
            part = (lowest << bits) - lowest
            lines.append(f"{name}:" + ";".join(f"{domain}={part:x}" for domain in domains))
    if caches.bandwidth_domains:
        step = caches.bandwidth_step
        amount = max(-(-percent // step) * step, caches.bandwidth_least)
        if caches.bandwidth_is_absolute:
            amount = max(BANDWIDTH_EIGHTHS_GB * percent // 100, 1)
        lines.append("MB:" + ";".join(f"{domain}={amount}" for domain in caches.bandwidth_domains))
    return "\n".join(lines)


RUNGS = (
    Rung("squeeze-50", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(50)),
    Rung("squeeze-20", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(20)),
    Rung("squeeze-10", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(10)),
    EVICT,
)
