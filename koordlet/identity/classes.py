"""QoS class of a cgroup: by the settings, Koordinator's labels and priorities, Kubernetes' own classes. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from api.protocol import LABEL_PRIORITY_CLASS
from api.qos import SYSTEM_CRITICAL_PRIORITY, PriorityBand, QoSClass, QoSSource, priority_band
from koordlet.identity.cgroup_names import QoSRule
from koordlet.identity.pods import PodFacts

_BY_KUBE_QOS = {"Guaranteed": QoSClass.LSR, "Burstable": QoSClass.LS, "BestEffort": QoSClass.BE}
_BANDS = {band.value: band for band in PriorityBand}


@dataclass(frozen=True, slots=True)
class Classification:
    """A class and where it comes from."""

    qos: QoSClass = QoSClass.NONE
    source: QoSSource = QoSSource.NONE


def rule_class(path: str, name: str, rules: Iterable[QoSRule]) -> Classification:
    """Return the class of the first rule that matches the path, or the name unless that is empty."""
    for rule in rules:
        if fnmatchcase(path, rule.match) or (name and fnmatchcase(name, rule.match)):
            return Classification(rule.qos, QoSSource.SETTINGS)
    return Classification()


def layout_class(kube_qos: str) -> Classification:
    """Return Koordinator's class for one of Kubernetes': Guaranteed is LSR, Burstable LS, BestEffort BE."""
    qos = _BY_KUBE_QOS.get(kube_qos, QoSClass.NONE)
    return Classification(qos, QoSSource.KUBERNETES) if qos else Classification()


def believed_class(labelled: QoSClass, kube_qos: str) -> QoSClass:
    """Return the class of a label as far as a pod's author can give it, NONE beyond.

    SYSTEM takes a critical priority, which admission guards, or a static pod; LSE and LSR take requests, which quotas
    and the scheduler count: without them one label would shield a whole directory of best-effort pods.
    """
    if labelled is QoSClass.SYSTEM:
        return QoSClass.NONE
    if labelled in (QoSClass.LSE, QoSClass.LSR) and kube_qos == "BestEffort":
        return QoSClass.NONE
    return labelled


def pod_class(pod: PodFacts, kube_qos: str) -> Classification:
    """Return the class of a pod: SYSTEM where the node needs it, else as labelled, else by Kubernetes' class.

    Static pods and pods of priority 2000000000 and above (system-node-critical, system-cluster-critical) are SYSTEM.
    """
    if pod.static or is_critical(pod):
        return Classification(QoSClass.SYSTEM, QoSSource.PRIORITY)
    kube_qos = pod.kube_qos or kube_qos
    labelled = believed_class(pod.qos, kube_qos)
    return Classification(labelled, QoSSource.LABEL) if labelled else layout_class(kube_qos)


def is_critical(pod: PodFacts) -> bool:
    """Return whether the node or the cluster needs a pod, by its priority."""
    return (pod.priority or 0) >= SYSTEM_CRITICAL_PRIORITY


def pod_band(pod: PodFacts) -> PriorityBand:
    """Return the priority band of a pod: by Koordinator's label, where there is none by number."""
    return band_of(pod.labels, pod.priority)


def band_of(labels: Mapping[str, str], priority: int | None) -> PriorityBand:
    """Return the band that a label names; without the label that of the number; NONE for an unknown name."""
    label = labels.get(LABEL_PRIORITY_CLASS)
    return priority_band(priority) if label is None else _BANDS.get(label, PriorityBand.NONE)
