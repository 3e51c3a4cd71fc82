"""Amounts of pods and containers, and their conversion to shares, quotas and limits. Numbers are Koordinator's.

Pods carry their batch and mid amounts in the spec and, for readers that do not see it, in the annotation
extended-resource-spec. Text from annotations is bounded before it is read: no author of them is trusted.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from api.kube.meta import Quantity, Wire
from api.kube.resources import QuantityError, Resources, parse_quantity
from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC
from koordlet.hooks.rule import RuleProblem
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from koordlet.strategies.cpuquota import quota_of

LEAST_SHARES, MOST_SHARES = 2, 262_144
LEAST_MEMORY_BYTES = 6 << 20
"""Limit that stands for zero: the least with which runtimes start a container."""
MOST_AMOUNT = (1 << 63) - 1
_MOST_CHARACTERS = 64 << 10
_QUANTITY = re.compile(r"\d{1,24}(\.\d{0,24})?([eE][+-]?\d{1,2}|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)


class ContainerAmounts(Wire, frozen=True):
    """Amounts of one container in the annotation."""

    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    limits: dict[str, Quantity] = msgspec.field(default_factory=dict)


class ExtendedResourceSpec(Wire, frozen=True):
    """The annotation extended-resource-spec."""

    containers: dict[str, ContainerAmounts] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits by resource name."""

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


def shares_of(millicores: int) -> int:
    """Return the cpu.shares of an amount."""
    return min(max(millicores * 1024 // 1000, LEAST_SHARES), MOST_SHARES)


def quota_us_of(millicores: int, ratio_percent: int = 100) -> int:
    """Return the quota per 100 ms of a limit on cores of `ratio_percent` of the usual speed, at least 1000."""
    return max(-(-quota_of(min(millicores, MOST_AMOUNT // 1000)) * 100 // max(ratio_percent, 1)), quota_of(0))


def limit_bytes_of(amount: int) -> int:
    """Return the memory limit of an amount; zero is the least limit, not none."""
    return amount if amount > 0 else LEAST_MEMORY_BYTES


def bounded_quantity(text: Quantity) -> int:
    """Return a quantity of an annotation, saturated at 2^63-1. Raises QuantityError, also for a negative one."""
    plain = str(text).strip()
    if not _QUANTITY.fullmatch(plain):
        raise QuantityError(f"not a quantity of at least 0: {plain[:64]!r}")
    return min(parse_quantity(plain), MOST_AMOUNT)


def bounded(text: str, key: str) -> str:
    """Return the text of an annotation that is short enough to be read. Raises RuleProblem."""
    if len(text) > _MOST_CHARACTERS:
        raise RuleProblem(f"{key}: {len(text)} characters; at most {_MOST_CHARACTERS} are read")
    return text


def container_amounts(pod: PodFacts, container: PodContainer, names: Iterable[str]) -> Amounts:
    """Return the container's amounts of these resources, of its spec or else of the pod's annotation.

    The annotation is its author's word: it counts only while the spec is not known, and only for pods without amounts
    of the node's own, so that it lifts no limit. Raises RuleProblem for an annotation that cannot be read.
    """
    wanted = tuple(names)
    if any(name in amounts for amounts in (container.requests, container.limits) for name in wanted):
        return Amounts(container.requests, container.limits)
    text = None
    if not pod.spec_known and pod.kube_qos == "BestEffort":
        text = pod.annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    return _annotated(text).get(container.name, Amounts()) if text is not None else Amounts()


def known_containers(pod: PodFacts) -> tuple[PodContainer, ...]:
    """Return the pod's containers, those of its annotation where the spec is not known. Raises RuleProblem."""
    text = pod.annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    if pod.containers or pod.spec_known or text is None:
        return pod.containers
    return tuple(PodContainer(name) for name in _annotated(text))


@lru_cache(maxsize=1024)
def _annotated(text: str) -> dict[str, Amounts]:
    key = ANNOTATION_EXTENDED_RESOURCE_SPEC
    try:
        spec = msgspec.json.decode(bounded(text, key), type=ExtendedResourceSpec)
        return {
            name: Amounts(_numbers(amounts.requests), _numbers(amounts.limits))
            for name, amounts in spec.containers.items()
        }
    except (ValueError, RecursionError) as error:  # QuantityError is a ValueError
        raise RuleProblem(f'{key}: {error}; write {{"containers": {{name: {{"requests": ...}}}}}}') from error


def _numbers(quantities: Mapping[str, Quantity]) -> Resources:
    return {name: bounded_quantity(text) for name, text in quantities.items()}


def most_at_once(containers: Iterable[PodContainer], amount_of: Callable[[PodContainer], int | None]) -> int | None:
    """Return the most that a pod's containers may have together, None where one of them has no amount.

    Init containers run alone, before the others but beside sidecars started earlier; ephemeral containers have no
    amounts and count for nothing.
    """
    steady = alone = 0
    for container in containers:
        if container.role in (ContainerRole.EPHEMERAL, ContainerRole.SANDBOX):
            continue
        amount = amount_of(container)
        if amount is None:
            return None
        if container.role is ContainerRole.INIT:
            alone = max(alone, steady + amount)
        else:
            steady += amount
    return max(steady, alone)
