"""Extended resources on a node's status: what differs, and whether it is worth a write now."""

import zlib
from collections.abc import Mapping
from typing import Any

from controllers.capacity.pods import amount
from controllers.kinds import Node

SLOT_SECONDS = 60.0
"""Granularity in which small differences of a cluster's nodes are spread."""


def stated(node: Node, name: str) -> int | None:
    """Return a resource of the node as published; None where capacity and allocatable lack it or disagree."""
    have, give = node.status.capacity.get(name), node.status.allocatable.get(name)
    if have is None or give is None:
        return None
    return amount({name: give}, name, 1) if amount({name: have}, name, 1) == amount({name: give}, name, 1) else -1


def status_patch(node: Node, wanted: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the merge patch of the status that publishes `wanted` (None removes); empty when nothing differs."""
    changed: dict[str, str | None] = {}
    for name, value in wanted.items():
        absent = name not in node.status.capacity and name not in node.status.allocatable
        if (value is None and not absent) or (value is not None and stated(node, name) != value):
            changed[name] = None if value is None else str(value)
    return {"status": {"capacity": changed, "allocatable": dict(changed)}} if changed else {}


def worth_it(
    node: Node,
    wanted: Mapping[str, int | None],
    *,
    share: float,
    update_seconds: float,
    written_seconds: float | None,
    now: float,
) -> bool:
    """Return whether differences are to be written now.

    A resource that comes, goes or moves by more than `share` of its value is written at once; less than that after
    `update_seconds`. Where the last write is not known, nodes take turns, so that a restart writes no cluster at once.
    """
    for name, value in wanted.items():
        old = stated(node, name)
        if old is None or value is None:
            if (old is None) != (value is None) or (value is None and name in node.status.capacity):
                return True
        elif old < 0 or abs(value - old) > old * share:
            return True
    if written_seconds is not None:
        return now - written_seconds >= update_seconds
    slots = max(1, round(update_seconds / SLOT_SECONDS))
    return zlib.crc32(node.name.encode()) % slots == int(now / SLOT_SECONDS) % slots
