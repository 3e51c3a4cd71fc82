"""SchedulingHint: nodes that a pod may use, and nodes that it takes without a look at others."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.meta import Wire
from api.protocol import ANNOTATION_SCHEDULING_HINT, ANNOTATION_SCHEDULING_HINT_DEPRECATED
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Handle, Plugin, Reason


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of SchedulingHint."""

    max_hint_nodes: int = 100
    """Preferred nodes beyond this many are passed over."""


class WireHint(Wire, frozen=True, kw_only=True):
    """The annotation."""

    node_names: list[str] = msgspec.field(default_factory=list)
    preferred_node_names: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ParsedHint:
    """A hint, or why it cannot be read."""

    allowed: frozenset[str] = frozenset()
    preferred: tuple[str, ...] = ()
    error: str = ""


class SchedulingHint(Plugin[ParsedHint]):
    """Restricts and prefers by the pod's annotation."""

    name = "SchedulingHint"
    rank = 90
    requeue_on = frozenset({"nodes/add"})

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)

    def prepare(self, info: PodInfo) -> ParsedHint | None:
        """Read the annotation; None without one."""
        key = ANNOTATION_SCHEDULING_HINT
        text = info.annotation(key)
        if text is None:
            key = ANNOTATION_SCHEDULING_HINT_DEPRECATED
            text = info.annotation(key)
        if not text:
            return None
        try:
            wire = decode_annotation(text, WireHint)
        except AnnotationError as error:
            return ParsedHint(error=f"annotation {key} cannot be read: {error}")
        allowed = frozenset(wire.node_names)
        preferred = wire.preferred_node_names[: self.config.max_hint_nodes]
        return ParsedHint(allowed, tuple(name for name in preferred if not allowed or name in allowed))

    def pre_filter(self, attempt: Attempt, spec: ParsedHint) -> Reason | None:
        """Refuse a hint that cannot be read."""
        return Reason(spec.error, resolvable=False) if spec.error else None

    def reasons(self, spec: ParsedHint) -> tuple[Reason, ...]:
        """Meaning of the filter's bit."""
        return (Reason("node(s) not among those hinted at", resolvable=False),)

    def filter(self, attempt: Attempt, spec: ParsedHint, rows: Rows) -> Bits | None:
        """Only the hinted nodes, where there are any."""
        if not spec.allowed:
            return None
        found = (attempt.snapshot.row(name) for name in spec.allowed)
        allowed = [row for row in found if row is not None]
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        return np.isin(numbers, allowed, invert=True).astype(np.int64)

    def prefer(self, attempt: Attempt, spec: ParsedHint) -> Sequence[Row]:
        """The preferred nodes in their order."""
        found = (attempt.snapshot.row(name) for name in spec.preferred)
        return [row for row in found if row is not None]
