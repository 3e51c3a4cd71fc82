"""Sensitivity and aggressiveness of each workload, as integer vectors over resources.

Amounts are millionths: sensitivity in lost seconds per second per unit of pressure, aggressiveness in units of
pressure (the share of a resource's capacity that one replica takes). Integers keep sums exact however often
pods come and go.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from api.crds import ResourceInterference, WorkloadProfile
from api.kube.interference import RESOURCES
from api.kube.workload import Workload

MICRO = 1_000_000

Vector: TypeAlias = NDArray[np.int64]
"""Per resource of RESOURCES, millionths."""


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """One replica of a workload on one type of node."""

    sensitivity: Vector
    aggressiveness: Vector


NEUTRAL = Traits(np.zeros(len(RESOURCES), dtype=np.int64), np.zeros(len(RESOURCES), dtype=np.int64))
"""Traits of an unprofiled workload: neither sensitive nor aggressive."""


class Profiles:
    """All profiles, and the traits that follow from them by workload and node type."""

    def __init__(self, *, minimum_samples: int = 0) -> None:
        self._minimum_samples = minimum_samples
        self._profiles: dict[Workload, dict[str, WorkloadProfile]] = {}
        self._traits: dict[tuple[Workload, str], Traits] = {}

    def put(self, profile: WorkloadProfile) -> Workload:
        """Add or replace a profile; returns the workload whose traits changed."""
        workload = _subject(profile)
        self._profiles.setdefault(workload, {})[profile.metadata.name] = profile
        self._forget(workload)
        return workload

    def drop(self, profile: WorkloadProfile) -> Workload:
        """Remove a profile; an unknown one is ignored."""
        workload = _subject(profile)
        self._profiles.get(workload, {}).pop(profile.metadata.name, None)
        self._forget(workload)
        return workload

    def node_types(self, workload: Workload) -> set[str]:
        """Node types that the workload has profiles of their own for."""
        profiles = self._profiles.get(workload, {}).values()
        return {profile.spec.node_type for profile in profiles} - {""}

    def traits(self, workload: Workload | None, node_type: str) -> Traits:
        """Sum over the workload's containers; each by its profile for the type, else by the one for any type."""
        if workload is None or workload not in self._profiles:
            return NEUTRAL
        key = (workload, node_type)
        known = self._traits.get(key)
        if known is None:
            known = self._traits[key] = self._sum(workload, node_type)
        return known

    def _sum(self, workload: Workload, node_type: str) -> Traits:
        best: dict[str, WorkloadProfile] = {}
        for profile in self._profiles[workload].values():
            spec = profile.spec
            if profile.status.samples < self._minimum_samples or spec.node_type not in ("", node_type):
                continue
            if spec.container not in best or spec.node_type:
                best[spec.container] = profile
        resources = [resource for profile in best.values() for resource in profile.status.resources]
        return Traits(
            _vector((each.name, typical_sensitivity(each)) for each in resources),
            _vector((each.name, each.aggressiveness) for each in resources),
        )

    def _forget(self, workload: Workload) -> None:
        for key in [key for key in self._traits if key[0] == workload]:
            del self._traits[key]


def typical_sensitivity(resource: ResourceInterference) -> float:
    """Mean over the load bins, weighed by how often each load was seen; never negative."""
    bins = resource.sensitivity
    samples = sum(each.samples for each in bins)
    if not bins:
        return 0.0
    if samples == 0:
        mean = sum(each.lost_seconds_per_pressure for each in bins) / len(bins)
    else:
        mean = sum(each.lost_seconds_per_pressure * each.samples for each in bins) / samples
    return max(mean, 0.0)


def _subject(profile: WorkloadProfile) -> Workload:
    named = profile.spec.workload
    return Workload(profile.metadata.namespace, named.kind, named.name)


def _vector(amounts: Iterable[tuple[str, float]]) -> Vector:
    vector = np.zeros(len(RESOURCES), dtype=np.int64)
    for name, amount in amounts:
        vector[RESOURCES.index(name)] += round(amount * MICRO)
    return vector
