"""Last-level cache and memory bandwidth by class and for single pods, through resctrl.

Masks and rounding are Koordinator's, but an empty range is widened to the least that the hardware accepts instead of
being dropped. Protected pods stay in the root group, which has all ways: others are kept out of some.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.intents import Intent, Knob
from api.protocol import ANNOTATION_RESCTRL
from api.qos import QoSClass
from koordlet.strategies.qos_settings import block_of, in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import CacheControl, Group, NodeView

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


class ResctrlClass(StrategySettings, frozen=True):
    """One class."""

    resctrl_qos: ResctrlBlock = field(default=ResctrlBlock(), name="resctrlQOS")


class ResctrlQosSettings(StrategySettings, frozen=True):
    """resctrlQOS of resourceQOSStrategy."""

    lsr_class: ResctrlClass = ResctrlClass()
    ls_class: ResctrlClass = ResctrlClass()
    be_class: ResctrlClass = ResctrlClass(resctrl_qos=ResctrlBlock(end_percent=30))
    system_class: ResctrlClass = ResctrlClass()


class Schemata(StrategySettings, frozen=True):
    """Share of one resource in a pod's annotation."""

    percent: Share = 100
    range: tuple[Annotated[int, Meta(ge=0, le=99)], Share] | None = None
    """From and to in percent; takes precedence over `percent`, which counts from 0."""
    cache_id: int | None = field(default=None, name="cacheID")


class ResctrlPolicy(StrategySettings, frozen=True):
    """Shares of one resource: for all domains, and for single ones."""

    schemata: Schemata | None = None
    schemata_per_cache: tuple[Schemata, ...] = ()


class PodResctrl(StrategySettings, frozen=True):
    """Resctrl annotation of a pod."""

    llc: ResctrlPolicy = ResctrlPolicy()
    mb: ResctrlPolicy = ResctrlPolicy()


@dataclass(frozen=True, slots=True)
class Domains:
    """Range of the cache and percent of the bandwidth, by domain."""

    ranges: dict[int, tuple[int, int]]
    percents: dict[int, int]


class ResctrlQos(Strategy[ResctrlQosSettings]):
    """Resource groups LS and BE, one for each pod that asks for its own, and their members.

    Reads: cache mask, bandwidth steps
    Intents: schemata and members of resource groups
    Pods: annotation
    Default: off
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"RdtResctrl": True, "Resctrl": False}
    settings_type = ResctrlQosSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class({"resctrlQOS": {"enable": True}})

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay; nothing where the hardware has no resctrl."""
        control = view.node.cache
        if control is None:
            return []
        if control.domains and (control.mask <= 0 or control.mask & (control.mask + 1)):
            self.problems["resctrl"] = f"the cache mask {control.mask:#x} is not contiguous from bit 0"
            return []
        own = [pod for pod in view.pods if ANNOTATION_RESCTRL in pod.annotations and self.gates["Resctrl"]]
        intents = [intent for pod in own for intent in self._of_pod(view, pod, control)]
        if self.gates["RdtResctrl"]:
            for qos in (QoSClass.LS, QoSClass.BE):
                intents += self._of_class(view, qos, control, {pod.path for pod in own})
        return intents

    def _of_class(self, view: NodeView, qos: QoSClass, control: CacheControl, apart: set[str]) -> Iterator[Intent]:
        block = block_of(self.settings, qos).resctrl_qos
        if not block.enable:
            return
        domains = Domains(
            dict.fromkeys(control.domains, (block.start_percent, block.end_percent)),
            dict.fromkeys(control.bandwidth_domains, block.mba_percent),
        )
        reason = f"{qos} has {block.start_percent} to {block.end_percent} percent of the cache"
        yield self.set_knob(qos.value, Knob.RESCTRL_SCHEMATA, schemata(domains, control), reason)
        members = [pod for pod in view.pods if pod.effective_qos is qos and not pod.protected]
        for pod in members:
            if pod.path not in apart:
                yield from self._members(view, pod, qos.value, reason)

    def _of_pod(self, view: NodeView, pod: Group, control: CacheControl) -> Iterator[Intent]:
        if pod.protected:
            return
        asked = read_annotation(pod, ANNOTATION_RESCTRL, PodResctrl(), self.problems)
        if asked == PodResctrl():
            return
        group = f"koordlet-{pod.uid}"
        domains = Domains(
            {domain: _range(_asked(asked.llc, domain)) for domain in control.domains},
            {domain: _asked(asked.mb, domain).percent for domain in control.bandwidth_domains},
        )
        reason = f"{pod.name} asks for its own part"
        yield self.set_knob(group, Knob.RESCTRL_SCHEMATA, schemata(domains, control), reason)
        yield from self._members(view, pod, group, reason)

    def _members(self, view: NodeView, pod: Group, group: str, reason: str) -> Iterator[Intent]:
        for container in view.containers(pod):
            if container.active:
                yield self.set_knob(container.path, Knob.RESCTRL_GROUP, group, reason)


def _asked(part: ResctrlPolicy, domain: int) -> Schemata:
    single = [one for one in part.schemata_per_cache if one.cache_id == domain]
    return single[0] if single else part.schemata or Schemata()


def _range(asked: Schemata) -> tuple[int, int]:
    return asked.range or (0, asked.percent)


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
