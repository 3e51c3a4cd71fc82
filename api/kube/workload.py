"""The workload of a pod, so that every program names it alike."""

import hashlib
import re
from typing import NamedTuple

from api.kube.objects import Pod

TEMPLATE_HASH_LABEL = "pod-template-hash"
_SCHEDULED = re.compile(r"(.+)-(?:2[5-9]|3[0-6])\d{6}")
"""A name and minutes since 1970, of the years 2017 to 2040; dates such as 20260101 are none."""


class Workload(NamedTuple):
    """The object a human would name as the pod's owner."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """`Kind/namespace/name`, as verdicts on the wire name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def profile_name(self) -> str:
        """Name of its WorkloadProfile: readable, valid, and no other workload's."""
        readable = re.sub(r"[^a-z0-9.-]", "-", self.name[:200].lower()).strip(".-")
        digest = hashlib.sha256(self.path.encode()).hexdigest()[:8]
        return f"{readable}-{digest}" if readable else digest


def workload_named(path: str) -> Workload | None:
    """Return the workload of a `Kind/namespace/name`; None for other texts."""
    kind, _, rest = path.partition("/")
    namespace, _, name = rest.partition("/")
    return Workload(namespace, kind, name) if kind and namespace and name and "/" not in name else None


def workload_of(pod: Pod) -> Workload | None:
    """The pod's workload: its controller, for a ReplicaSet of a Deployment the Deployment, for a CronJob's Job that.

    A pod does not say which CronJob made its Job; the Job's name does, which ends in the minute it was due.
    """
    owner = pod.metadata.controlled_by
    if owner is None:
        return None
    template = pod.metadata.labels.get(TEMPLATE_HASH_LABEL)
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return Workload(pod.metadata.namespace, "Deployment", owner.name.removesuffix(f"-{template}"))
    scheduled = _SCHEDULED.fullmatch(owner.name) if owner.kind == "Job" else None
    if scheduled:
        return Workload(pod.metadata.namespace, "CronJob", scheduled.group(1))
    return Workload(pod.metadata.namespace, owner.kind, owner.name)
