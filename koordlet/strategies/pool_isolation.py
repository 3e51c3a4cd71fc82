"""What a pool of pods has besides CPUs: disk, cache, network, OOM score and memory; and whose pods make room.

A pool has no cgroup of its own, so each of its pods has the limits, and its containers are members of the pool's
resource group.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, field

from api.intents import Knob, Strength
from api.qos import QoSClass
from koordlet.strategies.disk_limits import BlkioBlock, chosen_devices, rates_text, weights_text
from koordlet.strategies.eviction_order import USED, EvictionGoal, by_eviction_order, evictable
from koordlet.strategies.network_rates import SHARES, PodNetwork, bytes_per_second
from koordlet.strategies.resctrl_masks import ResctrlBlock, schemata, whole_node
from koordlet.strategies.strategy import StrategySettings
from koordlet.strategies.view import Group, NodeView

FEATURE = "ResourcePools"
"""Name in pods' eviction policies."""
Percent = Annotated[int, Meta(ge=1, le=100)]
Score = Annotated[int, Meta(ge=-1000, le=1000)]


class PoolMemory(StrategySettings, frozen=True):
    """Part of the node's memory that is meant for a pool, and when its own pods are evicted for it."""

    share_percent: Percent
    """Of the node's memory."""
    evict_percent: Percent = 95
    """Part of the share from which its least important pods are evicted, the biggest first."""
    evict_lower_percent: Percent = 90
    """Part of the share down to which they are."""

    def __post_init__(self) -> None:
        if self.evict_lower_percent >= self.evict_percent:
            raise ValueError(
                f"evictLowerPercent {self.evict_lower_percent} must be below evictPercent {self.evict_percent}"
            )


class ForcedPreemption(StrategySettings, frozen=True):
    """Taking from lower pools what they use, for the highest pool that has pods."""

    load_percent: Percent = 95
    """Load of a pool from which lower ones keep their leastCpus only, and no more what is predicted of them."""
    memory_percent: Percent = 95
    """Part of the node's memory in use from which pods of lower pools are evicted, those of the lowest first."""
    memory_lower_percent: Percent = 90
    """Part down to which they are."""

    def __post_init__(self) -> None:
        if self.memory_lower_percent >= self.memory_percent:
            raise ValueError(
                f"memoryLowerPercent {self.memory_lower_percent} must be below memoryPercent {self.memory_percent}"
            )


class Isolation(StrategySettings, frozen=True):
    """Settings that each pod of a pool has; those that are left out are not set."""

    blkio_qos: BlkioBlock | None = field(default=None, name="blkioQOS")
    resctrl_qos: ResctrlBlock | None = field(default=None, name="resctrlQOS")
    network_qos: PodNetwork | None = field(default=None, name="networkQOS")
    """Limits of each pod, in bits per second."""
    oom_score_adj: Score | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A setting of one cgroup or resource group."""

    target: str
    knob: Knob
    value: str
    strength: Strength = Strength.MILD


def isolation(
    view: NodeView, name: str, settings: Isolation, pods: Sequence[Group], problems: dict[str, str]
) -> Iterator[Wanted]:
    """Return the settings of a pool's pods; the same on every tick in which pods and settings stay."""
    if settings.blkio_qos is not None:
        devices = chosen_devices(settings.blkio_qos, view.node.disks, problems)
        rates, weights = rates_text(devices), weights_text(devices)
        for pod in pods:
            if rates:
                yield Wanted(pod.path, Knob.IO_MAX, rates, Strength.HARD)
            if weights:
                yield Wanted(pod.path, Knob.IO_WEIGHT, weights, Strength.INVISIBLE)
    if settings.resctrl_qos is not None and settings.resctrl_qos.enable and pods:
        yield from _cache(view, name, settings.resctrl_qos, pods, problems)
    if settings.network_qos is not None:
        yield from _network(name, settings.network_qos, pods, problems)
    if settings.oom_score_adj is not None:
        for container in _containers(view, pods):
            yield Wanted(container.path, Knob.OOM_SCORE_ADJ, str(settings.oom_score_adj), Strength.INVISIBLE)


def _containers(view: NodeView, pods: Sequence[Group]) -> list[Group]:
    return [container for pod in pods for container in view.containers(pod) if container.active]


def _cache(
    view: NodeView, name: str, block: ResctrlBlock, pods: Sequence[Group], problems: dict[str, str]
) -> Iterator[Wanted]:
    control = view.node.cache
    if control is None:
        return
    if control.domains and (control.mask <= 0 or control.mask & (control.mask + 1)):
        problems["resctrl"] = f"the cache mask {control.mask:#x} is not contiguous from bit 0"
        return
    group = f"koordlet-pool-{name}"
    yield Wanted(group, Knob.RESCTRL_SCHEMATA, schemata(whole_node(block, control), control))
    for container in _containers(view, pods):
        yield Wanted(container.path, Knob.RESCTRL_GROUP, group)


def _network(name: str, asked: PodNetwork, pods: Sequence[Group], problems: dict[str, str]) -> Iterator[Wanted]:
    try:
        limits = [
            bytes_per_second(str(stated), 0) if stated else 0 for stated in (asked.egress_limit, asked.ingress_limit)
        ]
    except ValueError as error:
        problems[name] = f"pool {name}: {error}"
        return
    for pod in pods:
        if limits[0]:
            share = SHARES[QoSClass.BE if pod.effective_qos is QoSClass.BE else QoSClass.LS]
            yield Wanted(pod.path, Knob.NET_CLASS, f"rate={limits[0]} ceil={limits[0]} prio={share.priority}")
        if limits[1]:
            yield Wanted(pod.path, Knob.NET_INGRESS, str(limits[1]))


def memory_goals(
    view: NodeView, pools: Sequence[tuple[str, PoolMemory | None]], members: Sequence[Sequence[Group]]
) -> Iterator[EvictionGoal]:
    """Return what pools above their share are to release, the highest first; pools are given by name."""
    for (name, memory), pods in zip(pools, members, strict=True):
        if memory is None:
            continue
        share = view.node.memory_bytes * memory.share_percent // 100
        used = sum(pod.memory_bytes or 0 for pod in pods)
        if used * 100 < share * memory.evict_percent:
            continue
        reason = f"pool {name} uses {used * 100 // max(share, 1)} percent of its {memory.share_percent} of 100 parts"
        release = used - share * memory.evict_lower_percent // 100
        yield EvictionGoal(FEATURE, USED, release, _candidates(pods), f"{reason} of the node's memory")


def forced_goal(
    view: NodeView, forced: ForcedPreemption, names: Sequence[str], members: Sequence[Sequence[Group]]
) -> EvictionGoal | None:
    """Return what pods of lower pools are to release for the highest pool that has pods; None for nothing."""
    highest = next((rank for rank, pods in enumerate(members) if pods), None)
    if view.memory_bytes is None or highest is None:
        return None
    whole = view.node.memory_bytes
    if view.memory_bytes * 100 < whole * forced.memory_percent:
        return None
    candidates = [pod for pods in reversed(members[highest + 1 :]) for pod in _candidates(pods)]
    reason = f"{view.memory_bytes * 100 // whole} percent of the node's memory are used, pool {names[highest]} has need"
    release = view.memory_bytes - whole * forced.memory_lower_percent // 100
    return EvictionGoal(FEATURE, USED, release, candidates, reason) if candidates else None


def _candidates(pods: Sequence[Group]) -> list[Group]:
    return by_eviction_order([pod for pod in pods if evictable(pod, FEATURE)], lambda pod: pod.memory_bytes or 0)
