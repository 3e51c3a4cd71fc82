"""The annotation in which holders of batch resources other than pods stand: one entry is the copilot's. Pure."""

from collections.abc import Mapping

import msgspec

from api.kube.meta import Quantity
from api.protocol import BATCH_CPU, BATCH_MEMORY
from api.qos import PriorityBand
from controllers.capacity.pods import Amounts, amount
from controllers.capacity.third_party import ANNOTATION_THIRD_PARTY, Allocation, Allocations


def held_by(annotations: Mapping[str, str], name: str) -> Amounts:
    """Return what the annotation says that `name` holds; nothing where it says nothing that can be read."""
    own = [each for each in _listed(annotations) or () if each.name == name]
    return (amount(own[0].resources, BATCH_CPU, 1), amount(own[0].resources, BATCH_MEMORY, 1)) if own else (0, 0)


def is_listed(annotations: Mapping[str, str], name: str) -> bool:
    """Return whether `name` has an entry."""
    return any(each.name == name for each in _listed(annotations) or ())


def is_unreadable(annotations: Mapping[str, str]) -> bool:
    """Return whether there is an annotation that cannot be read."""
    return _listed(annotations) is None


def with_held(annotations: Mapping[str, str], name: str, held: Amounts) -> str | None:
    """Return the annotation with the entry of `name` set to this; None when no entry is left.

    Others' entries stay as they are. An annotation that cannot be read is replaced: it withholds nothing as it is.
    """
    others = [each for each in _listed(annotations) or () if each.name != name]
    resources: dict[str, Quantity] = {BATCH_CPU: str(held[0]), BATCH_MEMORY: str(held[1])}
    own = [Allocation(name=name, priority=PriorityBand.BATCH.value, resources=resources)] if any(held) else []
    listed = Allocations(allocations=[*others, *own])
    return msgspec.json.encode(listed).decode() if listed.allocations else None


def _listed(annotations: Mapping[str, str]) -> list[Allocation] | None:
    text = annotations.get(ANNOTATION_THIRD_PARTY)
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=Allocations).allocations
    except (msgspec.DecodeError, RecursionError):
        return None
