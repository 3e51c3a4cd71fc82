"""Interference-aware overcommit: a node whose services lose time sells less, one that stays calm sells a little more.

The factor of a node moves in bounded steps towards one that falls in proportion to what its agent reported: seconds
that its services lose, by verdicts with them as victims, for each second of CPU that they use. What protection leaves
on purpose changes nothing. The state stands in an annotation of the node, so that a restart or another leader goes on
from it, and anybody can read it.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_INTERFERENCE, WireExtension, WireVerdict
from api.kube.meta import Wire
from api.kube.times import epoch_seconds, rfc3339
from api.qos import QoSClass
from controllers.capacity.pods import amounts

ANNOTATION_FACTOR = "node.koordinator.sh/interference-factor"
CPU_RESOURCES = frozenset({"cpu", "cpu-smt", "cache", "memory-bandwidth"})
"""Resources of verdicts that batch-cpu is sold less for; `memory` is for batch-memory."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


class InterferenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table `[controllers.overcommit.interference]`."""

    enabled: bool = False
    """Multiply batch resources by a factor of the node that follows the time its services lose."""
    least: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Lowest factor."""
    most: Annotated[float, msgspec.Meta(ge=1, le=1.5)] = 1.1
    """Highest factor, reached by nodes that stay calm. More than the margin leaves is never sold."""
    tolerated: Annotated[float, msgspec.Meta(ge=0)] = 0.05
    """Seconds lost for each second of CPU that the services of the node use, that change nothing: what a node's agent
    leaves them to lose, too (`loss_budget_ratio` of the response)."""
    weight: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """Decrease of the factor for each second lost for a second of use above that: 0.1 more sell half as much."""
    down: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Largest decrease in one step."""
    up: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.02
    """Largest increase in one step."""
    step_seconds: Annotated[float, msgspec.Meta(ge=10)] = 60.0
    """Least time between two steps down; steps up take five times as long."""
    calm_seconds: Annotated[float, msgspec.Meta(ge=60)] = 86_400.0
    """Time without any verdict from which the factor may exceed 1."""


class Factor(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """State of a node: factors, the time of the last step, and since when it has been calm."""

    cpu: float = 1.0
    memory: float = 1.0
    at: str | None = None
    calm_since: str | None = None
    lost: float = 0.0
    """Seconds lost for each second of use at the last step, at most 1."""


class Loss(msgspec.Struct, frozen=True):
    """Seconds that services of a node lose for each second of CPU that they use, at most 1."""

    cpu: float = 0.0
    memory: float = 0.0
    victims: tuple[str, ...] = ()


def factor_of(annotations: Mapping[str, str], settings: InterferenceSettings) -> Factor:
    """Return the state of a node, within the bounds of the settings; 1 without a readable one."""
    try:
        stated = msgspec.json.decode(annotations.get(ANNOTATION_FACTOR, "{}"), type=Factor)
    except (msgspec.DecodeError, RecursionError):
        return Factor()
    cpu = min(max(stated.cpu, settings.least), settings.most)
    memory = min(max(stated.memory, settings.least), settings.most)
    return msgspec.structs.replace(stated, cpu=cpu, memory=memory)


def loss_of(metric: NodeMetric | None, now: float) -> Loss:
    """Return what the services of a node lose by the verdicts of its report that are not over."""
    if metric is None:
        return Loss()
    cpu = memory = used = 0.0
    victims: set[str] = set()
    for pod in metric.status.pods_metric:
        if pod.qos == QoSClass.BE:
            continue
        used += amounts(pod.pod_usage.resources)[0] / 1000
        for verdict in _open(pod.extensions or {}, now):
            lost = max(verdict.lost_seconds_per_second, 0.0)
            if verdict.resource in CPU_RESOURCES:
                cpu += lost
            elif verdict.resource == "memory":
                memory += lost
            else:
                continue
            victims.add(f"{pod.namespace}/{pod.name}")
    return Loss(_part(cpu, used), _part(memory, used), tuple(sorted(victims)))


def _part(lost: float, used: float) -> float:
    """Return the loss for each second of use; 1 where services lose more than they use."""
    return lost / used if lost < used else float(lost > 0)


def _open(extensions: Mapping[str, Any], now: float) -> Iterable[WireVerdict]:
    try:
        stated = msgspec.convert(extensions.get(EXTENSION_INTERFERENCE) or {}, WireExtension)
    except msgspec.ValidationError:
        return ()
    return [each for each in stated.verdicts if (epoch_seconds(each.until) or 0.0) >= now]


def step(state: Factor, loss: Loss, settings: InterferenceSettings, now: float) -> Factor:
    """Return the state after `now`; the same object while no step is due."""
    last = epoch_seconds(state.at)
    lost = loss.cpu + loss.memory
    calm_since = None if lost > 0 else epoch_seconds(state.calm_since) or now
    calm = calm_since is not None and now - calm_since >= settings.calm_seconds
    ceiling = settings.most if calm else 1.0
    wanted = _wanted(loss.cpu, ceiling, settings), _wanted(loss.memory, ceiling, settings)
    falls = wanted[0] < state.cpu or wanted[1] < state.memory
    waited = now - last if last is not None else float("inf")
    # A clock that was wrong must not stop the factor for ever.
    waited = float("inf") if waited < -settings.step_seconds else waited
    if waited < settings.step_seconds * (1.0 if falls else 5.0):
        return state
    up = 0.0 if falls else settings.up
    cpu = _moved(state.cpu, wanted[0], up, settings)
    memory = _moved(state.memory, wanted[1], up, settings)
    unchanged = (cpu, memory) == (state.cpu, state.memory) and (calm_since is None) == (state.calm_since is None)
    if unchanged:
        return state
    return Factor(
        cpu=cpu,
        memory=memory,
        at=rfc3339(now),
        calm_since=None if calm_since is None else rfc3339(calm_since),
        lost=round(min(lost, 1.0), 3),
    )


def _wanted(lost: float, ceiling: float, settings: InterferenceSettings) -> float:
    """Return the factor that a loss asks for: what lasts holds it there, and does not lower it again."""
    over = max(lost - settings.tolerated, 0.0)
    return round(max(ceiling - settings.weight * over, settings.least), 3)


def _moved(value: float, wanted: float, up: float, settings: InterferenceSettings) -> float:
    return round(max(wanted, value - settings.down) if wanted < value else min(wanted, value + up), 3)
