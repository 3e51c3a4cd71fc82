"""Facts of pods beside their cgroups: classes, labels, amounts, from the kubelet or the API server."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass

ANNOTATION_PROTECTED = "koordlet.koordinator.sh/protected"
"""Pod annotation; `true` keeps a pod from every action but a loosening."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod; amounts by resource name as in `api.kube.resources`."""

    name: str
    """`namespace/pod`."""
    qos: QoSClass = QoSClass.NONE
    """As labelled."""
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    active: bool = True


FactsOf = Callable[[str], PodFacts | None]
"""Facts of the pod with this uid; None where they are not known."""


def no_pod_facts(_uid: str) -> PodFacts | None:
    """Return None for every pod: the source of facts without Kubernetes."""
    return None


def annotated(cgroups: Iterable[CgroupInfo], facts_of: FactsOf) -> frozenset[str]:
    """Return the paths of the pods that are protected by annotation."""
    if facts_of is no_pod_facts:
        return frozenset()
    pods = ((info.path, facts_of(info.pod_uid)) for info in cgroups if info.kind is CgroupKind.POD)
    return frozenset(path for path, facts in pods if facts and facts.annotations.get(ANNOTATION_PROTECTED) == "true")
