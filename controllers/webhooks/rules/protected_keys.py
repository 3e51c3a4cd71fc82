"""Annotations of pods that only schedulers may write, and those that no pod may have."""

from collections.abc import Mapping

from api.protocol import (
    ANNOTATION_BIND_GANG_GROUP_ID,
    ANNOTATION_BIND_GANG_MEMBER_COUNT,
    ANNOTATION_BIND_TIMESTAMP,
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_GPU_MINORS,
    ANNOTATION_IS_PRE_ALLOCATION,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESERVATION_NAME,
    ANNOTATION_RESERVATION_NODE,
    ANNOTATION_RESERVATION_RESIZE,
    ANNOTATION_RESERVE_POD,
    ANNOTATION_RESOURCE_STATUS,
)

SCHEDULER_KEYS = (
    ANNOTATION_RESOURCE_STATUS,
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_GPU_MINORS,
    ANNOTATION_BIND_TIMESTAMP,
    ANNOTATION_BIND_GANG_GROUP_ID,
    ANNOTATION_BIND_GANG_MEMBER_COUNT,
)
"""What a scheduler allocated: CPUs, devices, reservations. Nodes and schedulers act on these."""

FORBIDDEN_KEYS = (
    ANNOTATION_RESERVE_POD,
    ANNOTATION_RESERVATION_NAME,
    ANNOTATION_RESERVATION_NODE,
    ANNOTATION_RESERVATION_RESIZE,
    ANNOTATION_IS_PRE_ALLOCATION,
)
"""Marks of a scheduler's stand-ins for reservations, which are no pods of the cluster."""


def changed(before: Mapping[str, str], after: Mapping[str, str], keys: tuple[str, ...]) -> list[str]:
    """Return those of `keys` that were added, changed or removed."""
    return [key for key in keys if before.get(key) != after.get(key)]
