"""Topology domains: rows that share a label value, and sums over them."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.meta import LabelSelector
from api.kube.meta import LabelSelectorRequirement as Requirement
from scheduler.cluster_state.podcounts import PodCount, PodQuestion
from scheduler.cluster_state.snapshot import Snapshot


def domain_ids(snapshot: Snapshot, key: str) -> NDArray[np.int32]:
    """int32[rows_used]: the domain of each row; -1 without the label."""
    return snapshot.labels.column(key).ids[: snapshot.rows_used]


def domain_sums(ids: NDArray[np.int32], values: NDArray[np.int64], eligible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Sum of `values` over the eligible rows of each domain, int64[domains]; a last 0 answers id -1."""
    size = (int(ids.max()) if ids.size else -1) + 2
    inside = eligible & (ids >= 0)
    sums = np.bincount(ids[inside], weights=values[inside], minlength=size)
    return sums.astype(np.int64)


def with_label_keys(selector: LabelSelector | None, labels: dict[str, str], keys: list[str]) -> LabelSelector:
    """The selector narrowed to the pod's own values of `keys`; keys that the pod lacks are passed over."""
    extra = [Requirement(key=key, operator="In", values=[labels[key]]) for key in keys if key in labels]
    base = selector or LabelSelector()
    if not extra:
        return base
    return LabelSelector(match_labels=base.match_labels, match_expressions=[*base.match_expressions, *extra])


def without_label_values(selector: LabelSelector, labels: dict[str, str], keys: list[str]) -> LabelSelector:
    """The selector narrowed to pods whose values of `keys` differ from the pod's."""
    extra = [Requirement(key=key, operator="NotIn", values=[labels[key]]) for key in keys if key in labels]
    if not extra:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *extra])


def pod_count(
    snapshot: Snapshot,
    namespaces: frozenset[str] | None,
    selectors: tuple[LabelSelector | None, ...],
    *,
    alive: bool = False,
) -> PodCount:
    """The registered count of pods in `namespaces` (None = all) that match all selectors."""
    encoded = tuple(msgspec.msgpack.encode(selector, order="sorted") for selector in selectors)
    return snapshot.counts.count(PodQuestion(namespaces, encoded, alive), selectors)
