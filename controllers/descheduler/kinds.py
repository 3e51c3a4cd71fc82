"""Kinds that the descheduler watches: whole pods, and of workloads what says whether they are at rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

import msgspec

from api.crds import NODE_METRIC as NODE_METRIC_DEFINITION
from api.crds import POD_MIGRATION_JOB as POD_MIGRATION_JOB_DEFINITION
from api.crds import RESERVATION as RESERVATION_DEFINITION
from api.kube.meta import ObjectMeta, Wire
from api.kube.objects import Namespace, Node, Pod, PodDisruptionBudget
from cluster.resources import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
    custom,
)


class RollingUpdate(Wire, frozen=True, kw_only=True):
    """Part of an update that is held back on purpose."""

    partition: int | str | None = None


class UpdateStrategy(Wire, frozen=True, kw_only=True):
    """How a StatefulSet or CloneSet updates."""

    rolling_update: RollingUpdate | None = None
    partition: int | str | None = None
    paused: bool = False


class WorkloadSpec(Wire, frozen=True, kw_only=True):
    """Wanted pods of a workload; None replicas means 1."""

    replicas: int | None = None
    parallelism: int | None = None
    paused: bool = False
    """Updates wait on purpose."""
    update_strategy: UpdateStrategy | None = None


class WorkloadStatus(Wire, frozen=True, kw_only=True):
    """Pods of a workload as its controller counted them."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int | None = None
    current_revision: str = ""
    update_revision: str = ""


class WorkloadObject(Wire, frozen=True, kw_only=True):
    """A workload of any kind."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind states its pods, as the scale subresource of its definition says it."""

    wanted: str = ".spec.replicas"
    present: str = ".status.replicas"


class ScaledObject(Wire, frozen=True, kw_only=True):
    """A workload of a kind that states its pods elsewhere; `scaled_by` makes the type of a kind."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    paths: ClassVar[ScalePaths] = ScalePaths()


@cache
def scaled_by(paths: ScalePaths) -> type[ScaledObject]:
    """Return the type of the objects of a kind with these paths."""
    made = msgspec.defstruct(
        "ScaledObject", [], bases=(ScaledObject,), namespace={"paths": paths}, frozen=True, kw_only=True
    )
    assert issubclass(made, ScaledObject)
    return made


AnyWorkload: TypeAlias = WorkloadObject | ScaledObject

NODE = NODES.of(Node)
POD = PODS.of(Pod)
NAMESPACE = NAMESPACES.of(Namespace)
BUDGET = POD_DISRUPTION_BUDGETS.of(PodDisruptionBudget)
NODE_METRIC = custom(NODE_METRIC_DEFINITION)
MIGRATION = custom(POD_MIGRATION_JOB_DEFINITION)
RESERVATION = custom(RESERVATION_DEFINITION)
WORKLOADS: tuple[Resource[WorkloadObject], ...] = (
    REPLICA_SETS.of(WorkloadObject),
    DEPLOYMENTS.of(WorkloadObject),
    STATEFUL_SETS.of(WorkloadObject),
    REPLICATION_CONTROLLERS.of(WorkloadObject),
    JOBS.of(WorkloadObject),
    Resource("CloneSet", "clonesets", WorkloadObject, "apps.kruise.io", "v1alpha1"),
    Resource("StatefulSet", "statefulsets", WorkloadObject, "apps.kruise.io", "v1beta1"),
    Resource("UnitedDeployment", "uniteddeployments", WorkloadObject, "apps.kruise.io", "v1alpha1"),
)
"""Kinds whose wanted pods and updates are known; those that the cluster does not serve are empty."""


def with_workloads(workloads: Sequence[Resource[Any]]) -> tuple[Resource[Any], ...]:
    """Return all that the descheduler watches, given the kinds of workloads."""
    return (NODE, POD, NAMESPACE, BUDGET, NODE_METRIC, MIGRATION, RESERVATION, *workloads)


EVERYTHING = with_workloads(WORKLOADS)
