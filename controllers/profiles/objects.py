"""WorkloadProfile objects from traits, as the scheduler's InterferenceAware plugin reads them. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from api.crds import WORKLOAD_PROFILE, ResourceInterference, SensitivityBin, WorkloadProfileSpec, WorkloadProfileStatus
from api.crds.analysis import WorkloadReference
from api.kube.workload import workload_named

MOST_LOAD = 100.0
"""Upper end of the only bin: loads are not told apart in the object."""


class Figures(msgspec.Struct, frozen=True):
    """One resource of one workload."""

    sensitivity: float
    error: float
    """Half of the interval of 90 %."""
    aggressiveness: float
    correlated: bool
    """Known by correlation only."""
    trials: bool
    """Rests on verified trials, in part at least."""


class WorkloadTraits(msgspec.Struct, frozen=True):
    """One workload as `Kind/namespace/name`."""

    workload: str
    resources: dict[str, Figures]


def profiles_of(table: Iterable[WorkloadTraits]) -> list[dict[str, Any]]:
    """Return objects to apply; a workload without namespace, which is no pod's owner, has none."""
    return [made for each in table if (made := _object(each)) is not None]


def resource_of(resource: str, own: Figures) -> ResourceInterference:
    """Return one resource as it stands in an object."""
    sensitivity = SensitivityBin(
        load_from=0.0,
        load_to=MOST_LOAD,
        lost_seconds_per_pressure=round(own.sensitivity, 6),
        error=round(own.error, 6),
    )
    return ResourceInterference(name=resource, sensitivity=[sensitivity], aggressiveness=round(own.aggressiveness, 6))


def _object(each: WorkloadTraits) -> dict[str, Any] | None:
    workload = workload_named(each.workload)
    if workload is None or not each.resources:
        return None
    resources = [resource_of(resource, own) for resource, own in sorted(each.resources.items())]
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind=workload.kind, name=workload.name), container="")
    return {
        "apiVersion": WORKLOAD_PROFILE.api_version,
        "kind": WORKLOAD_PROFILE.kind,
        "metadata": {"namespace": workload.namespace, "name": workload.profile_name},
        "spec": msgspec.to_builtins(spec),
        "status": msgspec.to_builtins(WorkloadProfileStatus(resources=resources)),
    }
