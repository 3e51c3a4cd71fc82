"""Memory protection, throttling and background reclaim by class; formulas and defaults are Koordinator's.

Protected pods are only protected, never throttled. A setting at its neutral value sets nothing, so that the kernel's
and the kubelet's own values stay.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.intents import Intent, Knob, Strength
from api.kube.resources import MEMORY
from api.protocol import ANNOTATION_MEMORY_QOS, BATCH_MEMORY
from api.qos import QoSClass
from koordlet.strategies.qos_settings import block_of, block_of_directory, in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, KubeQoS, NodeInfo, NodeView

Percent = Annotated[int, Meta(ge=0, le=100)]
Switch = Annotated[int, Meta(ge=0, le=1)]


class MemoryBlock(StrategySettings, frozen=True):
    """memoryQOS of one class, and with `policy` of a pod's annotation; the defaults here mean: leave alone."""

    enable: bool = False
    policy: Literal["default", "none", "auto"] = "default"
    """For a pod: as its class, none, or as recommended for its class."""
    min_limit_percent: Percent = 0
    """Percent of the request that is never reclaimed."""
    low_limit_percent: Percent = 0
    """Percent of the request that is reclaimed last."""
    throttling_percent: Percent = 0
    """Percent of the way from request to limit at which the container is throttled and reclaimed; 0 is nowhere."""
    wmark_ratio: Percent = 0
    """Percent of the limit or memory.high at which background reclaim starts; 0 is nowhere."""
    wmark_scale_permill: Annotated[int, Meta(ge=1, le=1000)] = 50
    wmark_min_adj: Annotated[int, Meta(ge=-25, le=50)] = 0
    priority_enable: Switch = 0
    priority: Annotated[int, Meta(ge=0, le=12)] = 0
    oom_kill_group: Switch = 0


class MemoryClass(StrategySettings, frozen=True):
    """One class."""

    memory_qos: MemoryBlock = field(default=MemoryBlock(), name="memoryQOS")


_SENSITIVE = MemoryClass(memory_qos=MemoryBlock(wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25))


class MemoryQosSettings(StrategySettings, frozen=True):
    """memoryQOS of resourceQOSStrategy."""

    lsr_class: MemoryClass = _SENSITIVE
    ls_class: MemoryClass = _SENSITIVE
    be_class: MemoryClass = MemoryClass(
        memory_qos=MemoryBlock(wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=50)
    )
    system_class: MemoryClass = MemoryClass()


class MemoryQos(Strategy[MemoryQosSettings]):
    """Memory protection and limits of pods, containers and the kubelet's directories; a directory protects the sum
    of its pods.

    Reads: requests and limits
    Intents: `memory.min`, `memory.low`, `memory.high`, watermarks, priorities
    Pods: annotation
    Default: off, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"CgroupReconcile": False}
    settings_type = MemoryQosSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class(
        {
            "memoryQOS": {
                "enable": True,
                "minLimitPercent": 10,
                "lowLimitPercent": 20,
                "throttlingPercent": 60,
                "priorityEnable": 1,
                "oomKillGroup": 1,
            }
        }
    )

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["CgroupReconcile"]:
            return []
        protected: dict[KubeQoS, list[tuple[int, int]]] = {kube_qos: [] for kube_qos in KubeQoS}
        intents: list[Intent] = []
        for pod in view.pods:
            block = self._block_of(pod)
            if block is None or not pod.active:
                continue
            protected[pod.kube_qos].append(protection_bytes(pod, block))
            intents += self._protection(pod.path, protection_bytes(pod, block))
            for container in view.containers(pod):
                intents += self._container(container, block, view.node)
        return [*intents, *self._directories(view, protected)]

    def _block_of(self, pod: Group) -> MemoryBlock | None:
        """Return the block that applies to a pod; None where neither its class nor the pod asks for anything."""
        of_class = block_of(self.settings, pod.effective_qos).memory_qos
        if ANNOTATION_MEMORY_QOS not in pod.annotations:
            return of_class if of_class.enable else None
        policy = read_annotation(pod, ANNOTATION_MEMORY_QOS, MemoryBlock(), self.problems).policy
        if policy == "auto":
            of_class = block_of(MemoryQosSettings(), pod.effective_qos).memory_qos
        elif policy == "none" or not of_class.enable:
            of_class = MemoryBlock()
        return read_annotation(pod, ANNOTATION_MEMORY_QOS, of_class, self.problems)

    def _protection(self, path: str, protection: tuple[int, int]) -> Iterator[Intent]:
        for knob, amount in zip((Knob.MEMORY_MIN, Knob.MEMORY_LOW), protection, strict=True):
            if amount:
                yield self.set_knob(path, knob, str(amount), "its share of what its pods request", Strength.INVISIBLE)

    def _container(self, container: Group, block: MemoryBlock, node: NodeInfo) -> Iterator[Intent]:
        protection = protection_bytes(container, block)
        yield from self._protection(container.path, protection)
        high = high_bytes(container, block, node)
        if high is not None and container.protected:
            self.problems[container.path] = "memory.high would throttle a protected pod; drop its throttlingPercent"
        elif high is not None:
            reason = f"{block.throttling_percent} percent of the way from its request to its limit"
            yield self.set_knob(container.path, Knob.MEMORY_HIGH, str(max(high, protection[0])), reason, Strength.HARD)
        if block.wmark_ratio:
            reason = f"background reclaim from {block.wmark_ratio} percent on"
            yield self.set_knob(container.path, Knob.MEMORY_WMARK_RATIO, str(block.wmark_ratio), reason)
            yield self.set_knob(container.path, Knob.MEMORY_WMARK_SCALE_FACTOR, str(block.wmark_scale_permill), reason)
        if block.wmark_min_adj:
            reason = "global reclaim spares it" if block.wmark_min_adj < 0 else "global reclaim begins with it"
            yield self.set_knob(container.path, Knob.MEMORY_WMARK_MIN_ADJ, str(block.wmark_min_adj), reason)
        yield from self._priority(container.path, block)
        if block.oom_kill_group:
            yield self.set_knob(
                container.path, Knob.MEMORY_OOM_GROUP, "1", "it cannot run without one of its processes"
            )

    def _priority(self, path: str, block: MemoryBlock) -> Iterator[Intent]:
        if block.priority_enable:
            reason = f"priority {block.priority} in the order of kills when memory runs out"
            yield self.set_knob(path, Knob.MEMORY_USE_PRIORITY_OOM, "1", reason)
            yield self.set_knob(path, Knob.MEMORY_PRIORITY, str(block.priority), reason)

    def _directories(self, view: NodeView, protected: Mapping[KubeQoS, list[tuple[int, int]]]) -> Iterator[Intent]:
        every = [amounts for pods in protected.values() for amounts in pods]
        for kube_qos in KubeQoS:
            directory = view.qos_dir(kube_qos)
            if directory is None:
                continue
            pods = every if kube_qos is KubeQoS.GUARANTEED else protected[kube_qos]
            yield from self._protection(directory.path, (sum(pod[0] for pod in pods), sum(pod[1] for pod in pods)))
            block = block_of_directory(self.settings, kube_qos).memory_qos
            yield from self._priority(directory.path, block if block.enable else MemoryBlock())


def protection_bytes(group: Group, block: MemoryBlock) -> tuple[int, int]:
    """Return memory.min and memory.low; the latter, where set at all, is not below the former."""
    request = group.requests.get(_name(group), 0)
    least, low = request * block.min_limit_percent // 100, request * block.low_limit_percent // 100
    return least, max(low, least) if low else 0


def high_bytes(group: Group, block: MemoryBlock, node: NodeInfo) -> int | None:
    """Return memory.high in whole pages, at least one; None where nothing is to be throttled.

    Without a limit, the node's allocatable memory is used.
    """
    if not block.throttling_percent:
        return None
    request = group.requests.get(_name(group), 0)
    limit = group.limits.get(_name(group)) or node.allocatable.get(MEMORY, node.memory_bytes)
    high = request + (limit - request) * block.throttling_percent // 100
    return max(high // node.page_bytes, 1) * node.page_bytes


def _name(group: Group) -> str:
    return BATCH_MEMORY if group.qos is QoSClass.BE else MEMORY
