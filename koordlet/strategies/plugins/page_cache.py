"""Page cache limits of pods on kernels that have them; sizes are Koordinator's, zero switches a limit off."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.intents import Intent, Knob
from api.kube.resources import MEMORY
from api.protocol import ANNOTATION_MEMORY_QOS
from koordlet.strategies.qos_settings import block_of, in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, NodeView


class PageCacheBlock(StrategySettings, frozen=True):
    """The pageCache fields of memoryQOS, of one class or of a pod's annotation."""

    enable: bool = False
    page_cache_enable: bool | None = None
    """Switch; without it the size decides."""
    page_cache_limit_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    """Percent of the memory limit."""
    page_cache_limit_size: Annotated[int, Meta(ge=0)] | None = None
    """Bytes; takes precedence over the percent, and is at most the memory limit."""
    page_cache_reclaim_sync: bool = False
    """Whether a reader over the limit waits for the reclaim."""


class PageCacheClass(StrategySettings, frozen=True):
    """One class."""

    memory_qos: PageCacheBlock = field(default=PageCacheBlock(), name="memoryQOS")


class PageCacheSettings(StrategySettings, frozen=True):
    """memoryQOS of resourceQOSStrategy."""

    lsr_class: PageCacheClass = PageCacheClass()
    ls_class: PageCacheClass = PageCacheClass()
    be_class: PageCacheClass = PageCacheClass()
    system_class: PageCacheClass = PageCacheClass()


class PageCache(Strategy[PageCacheSettings]):
    """Page cache limits of pods that are not protected.

    Reads: memory limits
    Intents: `memory.pagecache_limit.*`
    Pods: annotation
    Default: off, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"CgroupReconcile": False}
    settings_type = PageCacheSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class({"memoryQOS": {"enable": True, "pageCacheLimitPercent": 30}})

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["CgroupReconcile"]:
            return []
        return [intent for pod in view.pods if pod.active and not pod.protected for intent in self._of_pod(pod)]

    def _of_pod(self, pod: Group) -> Iterator[Intent]:
        of_class = block_of(self.settings, pod.effective_qos).memory_qos
        block = read_annotation(
            pod, ANNOTATION_MEMORY_QOS, of_class if of_class.enable else PageCacheBlock(), self.problems
        )
        size = cache_bytes(block, pod.limits.get(MEMORY) or pod.limits.get(pod.memory_name))
        enabled = block.page_cache_enable if block.page_cache_enable is not None else bool(size)
        if size is None or not enabled:
            return
        reason = f"its page cache may hold {size} bytes"
        yield self.set_knob(pod.path, Knob.PAGE_CACHE_LIMIT, str(size), reason)
        yield self.set_knob(pod.path, Knob.PAGE_CACHE_SYNC, str(int(block.page_cache_reclaim_sync)), reason)
        yield self.set_knob(pod.path, Knob.PAGE_CACHE_ENABLE, "1", reason)


def cache_bytes(block: PageCacheBlock, limit_bytes: int | None) -> int | None:
    """Return the limit; None where none is set, or a percent of a missing limit. 0 is no limit of nothing."""
    if block.page_cache_limit_size is not None:
        size = block.page_cache_limit_size if limit_bytes is None else min(block.page_cache_limit_size, limit_bytes)
    elif block.page_cache_limit_percent is not None and limit_bytes is not None:
        size = limit_bytes * block.page_cache_limit_percent // 100
    else:
        return None
    return size or None
