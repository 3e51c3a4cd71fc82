"""Last-level cache and memory bandwidth by class and for single pods, through resctrl.

Masks and rounding are Koordinator's, but an empty range is widened to the least that the hardware accepts instead of
being dropped. Protected pods stay in the root group, which has all ways: others are kept out of some.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.intents import Intent, Knob
from api.protocol import ANNOTATION_RESCTRL
from api.qos import QoSClass
from koordlet.strategies.qos_settings import block_of, in_each_class
from koordlet.strategies.resctrl_masks import Domains, ResctrlBlock, Share, schemata, whole_node
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import CacheControl, Group, NodeView


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
        domains = whole_node(block, control)
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
