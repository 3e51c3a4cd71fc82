"""Labels of series that tell a cgroup: pods by the labels of the kubelet's own metrics, everything else by its path."""

import hashlib
from collections.abc import Container

from prometheus_client.core import Metric as Family

from api.frame import CgroupInfo, CgroupKind
from api.verdicts import CgroupRef

Labels = tuple[str, ...]

IDENTITY = ("namespace", "pod", "container", "cgroup")
"""A container of a pod has no `cgroup`, so that its series outlives a restart and joins with the kubelet's,
cAdvisor's and kube-state-metrics'; any other cgroup has its path there."""
CGROUP_LABELS = (*IDENTITY, "name", "qos")
VICTIM = ("namespace", "pod", "container", "victim_cgroup")
CULPRIT = ("culprit_namespace", "culprit_pod", "culprit_container", "culprit_cgroup")
_OPTIONAL = frozenset((*IDENTITY, *VICTIM, *CULPRIT))
_LONGEST = 512
"""Letters of a label: a user may nest cgroups to paths of many thousands."""
NO_POD: Labels = ("", "", "")


def identity_of(info: CgroupInfo) -> Labels:
    """Return the values of IDENTITY."""
    container = info.container if info.kind is CgroupKind.CONTAINER else ""
    return _identity(info.namespace, info.pod, container, info.path)


def identity_of_ref(ref: CgroupRef, path: str) -> Labels:
    """Return the values of IDENTITY for a side of a verdict."""
    return _identity(ref.namespace, ref.pod, ref.container, path)


def short(text: str) -> str:
    """Return a path or name as a label: of a long one both ends and a digest, so that two of them stay different."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST // 2]}…{digest}…{text[-_LONGEST // 4 :]}"


def distinct(identity: Labels, path: str, taken: Container[Labels]) -> Labels:
    """Return the identity, with the path where another cgroup has it already: two instances of one container."""
    return (*identity[:3], short(path)) if identity in taken else identity


def without_empty(family: Family) -> Family:
    """Drop the labels of pods that are empty, which is the same to Prometheus and shorter."""
    for number, sample in enumerate(family.samples):
        kept = {name: value for name, value in sample.labels.items() if value or name not in _OPTIONAL}
        family.samples[number] = sample._replace(labels=kept)
    return family


def _identity(namespace: str, pod: str, container: str, path: str) -> Labels:
    if not pod:
        return (*NO_POD, short(path))
    return namespace, pod, container, "" if container else short(path)
