"""Batch resources that others than pods hold on a node: the annotations that a YARN copilot and its like write."""

from collections.abc import Mapping

import msgspec

from api.kube.meta import Quantity, Wire
from api.protocol import BATCH_CPU, BATCH_MEMORY
from api.qos import PriorityBand
from controllers.capacity.pods import Amounts, amount, total

ANNOTATION_THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"
ANNOTATION_ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


class Allocation(Wire, frozen=True, kw_only=True):
    """One holder and what it holds."""

    name: str = ""
    priority: str = ""
    resources: dict[str, Quantity] = msgspec.field(default_factory=dict)


class Allocations(Wire, frozen=True, kw_only=True):
    """Payload of `thirdPartyAllocations`."""

    allocations: list[Allocation] = msgspec.field(default_factory=list)


class Origin(Wire, frozen=True, kw_only=True):
    """Payload of `originExtendedAllocatable`."""

    resources: dict[str, Quantity] = msgspec.field(default_factory=dict)


def held(annotations: Mapping[str, str]) -> tuple[Amounts, str]:
    """Return the batch resources that third parties hold, and why the annotation cannot be used; empty when it can."""
    text = annotations.get(ANNOTATION_THIRD_PARTY)
    if not text:
        return (0, 0), ""
    try:
        stated = msgspec.json.decode(text, type=Allocations)
    except (msgspec.DecodeError, RecursionError) as error:
        return (0, 0), str(error)
    batch = [each for each in stated.allocations if each.priority == PriorityBand.BATCH]
    held_of = total((amount(each.resources, BATCH_CPU, 1), amount(each.resources, BATCH_MEMORY, 1)) for each in batch)
    return held_of, ""


def origin_text(batch: Amounts) -> str:
    """Return the annotation that states batch resources before third parties."""
    resources: dict[str, Quantity] = {BATCH_CPU: str(batch[0]), BATCH_MEMORY: str(batch[1])}
    return msgspec.json.encode(Origin(resources=resources)).decode()


def origin_of(annotations: Mapping[str, str]) -> Amounts | None:
    """Return what the annotation states; None without a readable one."""
    text = annotations.get(ANNOTATION_ORIGIN)
    if not text:
        return None
    try:
        stated = msgspec.json.decode(text, type=Origin)
    except (msgspec.DecodeError, RecursionError):
        return None
    return amount(stated.resources, BATCH_CPU, 1), amount(stated.resources, BATCH_MEMORY, 1)
