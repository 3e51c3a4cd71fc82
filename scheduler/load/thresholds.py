"""Up to which usage a node takes pods: from settings, and from the node's own annotation."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.meta import Wire
from api.kube.objects import Node
from api.kube.times import duration_seconds
from api.protocol import ANNOTATION_USAGE_THRESHOLDS
from scheduler.load.node import LoadScope, LoadView

Percents = Mapping[str, int]
"""Resource name to percent of allocatable; 0 means that the resource is not checked."""


class Aggregated(Wire, frozen=True, kw_only=True):
    """A limit on a percentile instead of the average."""

    usage_thresholds: dict[str, int] = msgspec.field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class NodeThresholds(Wire, frozen=True, kw_only=True):
    """The annotation of a node; None leaves it to the settings."""

    usage_thresholds: dict[str, int] | None = None
    prod_usage_thresholds: dict[str, int] | None = None
    aggregated_usage: Aggregated | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """One check of a node: a kind of usage against percentages."""

    view: LoadView
    percents: Percents

    @property
    def active(self) -> bool:
        """Return whether anything is checked at all."""
        return any(percent > 0 for percent in self.percents.values())


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All limits of a node: usual ones, percentile ones and those for prod pods by prod usage."""

    usage: Percents
    prod: Percents
    aggregated: Aggregated | None = None
    with_system: bool = False

    def on(self, node: Node) -> "Thresholds":
        """These limits with what the node's annotation says instead; an unreadable one is passed over."""
        text = node.metadata.annotations.get(ANNOTATION_USAGE_THRESHOLDS)
        if not text:
            return self
        try:
            own = decode_annotation(text, NodeThresholds)
        except AnnotationError:
            return self
        return Thresholds(
            self.usage if own.usage_thresholds is None else own.usage_thresholds,
            self.prod if own.prod_usage_thresholds is None else own.prod_usage_thresholds,
            self.aggregated if own.aggregated_usage is None else own.aggregated_usage,
            self.with_system,
        )

    def general(self) -> Limits:
        """Check for most pods: the percentile limits where configured, else the plain ones."""
        by = self.aggregated
        if by is not None and by.usage_thresholds and by.usage_aggregation_type:
            window = duration_seconds(by.usage_aggregated_duration) or 0.0
            return Limits(LoadView(LoadScope.NODE, by.usage_aggregation_type, window), by.usage_thresholds)
        return Limits(LoadView(), self.usage)

    def for_prod(self) -> Limits:
        """Check for prod pods: prod usage where limits for it exist, else as for all others."""
        if self.prod:
            return Limits(LoadView(LoadScope.PROD, with_system=self.with_system), self.prod)
        return self.general()
