"""Parts of the last-level cache and of memory bandwidth, in percent and as resctrl takes them.

Masks and rounding are Koordinator's, but an empty range is widened to the least that the hardware accepts.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, field

from koordlet.strategies.strategy import StrategySettings
from koordlet.strategies.view import CacheControl

Share = Annotated[int, Meta(ge=1, le=100)]


class ResctrlBlock(StrategySettings, frozen=True):
    """resctrlQOS of one class."""

    enable: bool = False
    start_percent: Annotated[int, Meta(ge=0, le=99)] = field(default=0, name="catRangeStartPercent")
    end_percent: Share = field(default=100, name="catRangeEndPercent")
    mba_percent: Share = 100

    def __post_init__(self) -> None:
        if self.end_percent <= self.start_percent:
            raise ValueError(
                f"catRangeEndPercent {self.end_percent} must be above catRangeStartPercent {self.start_percent}; "
                "a class needs some cache"
            )


@dataclass(frozen=True, slots=True)
class Domains:
    """Range of the cache and percent of the bandwidth, by domain."""

    ranges: dict[int, tuple[int, int]]
    percents: dict[int, int]


def whole_node(block: ResctrlBlock, control: CacheControl) -> Domains:
    """Return the same part of every domain."""
    return Domains(
        dict.fromkeys(control.domains, (block.start_percent, block.end_percent)),
        dict.fromkeys(control.bandwidth_domains, block.mba_percent),
    )


def schemata(domains: Domains, control: CacheControl) -> str:
    """Return the schemata lines."""
    ways = [f"{domain}={cache_mask(control, *ends):x}" for domain, ends in sorted(domains.ranges.items())]
    rates = [f"{domain}={bandwidth(control, percent)}" for domain, percent in sorted(domains.percents.items())]
    lines = ("L3", ways), ("MB", rates)
    return "\n".join(f"{name}:{';'.join(values)}" for name, values in lines if values)


def cache_mask(control: CacheControl, start_percent: int, end_percent: int) -> int:
    """Return contiguous ways from start to end, both rounded up; at least as many as the hardware accepts."""
    ways = control.mask.bit_length()
    start, end = (-(-ways * percent // 100) for percent in (start_percent, end_percent))
    least = min(max(control.least_ways, 1), ways)
    end = min(max(end, start + least), ways)
    start = min(start, end - least)
    return (1 << end) - (1 << start)


def bandwidth(control: CacheControl, percent: int) -> int:
    """Return the percent rounded up to the hardware's step, or the absolute figure where it takes one; never 0."""
    if control.bandwidth_full is None:
        stepped = -(-percent // control.bandwidth_step) * control.bandwidth_step
        return min(max(stepped, control.bandwidth_floor), 100)
    return control.bandwidth_unlimited if percent >= 100 else max(control.bandwidth_full * percent // 100, 1)
