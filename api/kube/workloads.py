"""Groups of pods that are scheduled together, scheduling.k8s.io/v1alpha2."""

from api.kube.meta import ObjectMeta, Wire


class GangPolicy(Wire, frozen=True):
    """Pods that must be placed together."""

    min_count: int = 0


class GroupPolicy(Wire, frozen=True):
    """How the pods of a group are placed; without `gang` each by itself."""

    gang: GangPolicy | None = None


class WorkloadPodGroupSpec(Wire, frozen=True):
    """What a group asks for."""

    scheduling_policy: GroupPolicy = GroupPolicy()


class WorkloadPodGroup(Wire, frozen=True):
    """A group that pods name in `spec.schedulingGroup.podGroupName`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadPodGroupSpec = WorkloadPodGroupSpec()
