"""QoS classes and owners on the tree of cgroups: what an action on a cgroup hits. Pure.

The response chooses by it the cgroups that it may limit, and the enforcer checks by it what it is asked for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from api.cgroup_path import lineage, parent
from api.frame import UNKNOWN_UID, CgroupInfo, CgroupKind
from api.qos import QoSClass, QoSSource

_OWN = (0, UNKNOWN_UID)


@dataclass(frozen=True)
class TreeClasses:
    """The cgroups of one frame."""

    cgroups: Mapping[str, CgroupInfo] = field(default_factory=dict)
    """By path."""
    believes_kubernetes: bool = True
    """Whether a BestEffort pod without a label counts as BE. Not where no source tells of pods: any may be critical."""

    def of(self, path: str) -> QoSClass:
        """Return the class of a cgroup, or that of its nearest ancestor with one.

        The kubelet's directories pass none on: a pod that no source knows yet may be critical to the node.
        """
        for each in lineage(path):
            info = self.cgroups.get(each)
            if info is None:
                continue
            if each != path and info.kind is CgroupKind.KUBEPODS:
                break
            if info.qos:
                is_believed = self.believes_kubernetes or info.qos_source is not QoSSource.KUBERNETES
                return QoSClass(info.qos) if is_believed or info.qos != QoSClass.BE else QoSClass.NONE
        return QoSClass.NONE

    def within(self, path: str) -> frozenset[QoSClass]:
        """Return the classes of a cgroup and those below it: an action on it hits them all.

        A directory without a class counts by what lives in it.
        """
        return self._within.get(path) or frozenset({self.of(path)})

    def boundary_of(self, path: str) -> str:
        """Return the first directory from the root down that belongs to another user than root, or the path itself.

        Its owner makes and fills the directories below it, and writes their files: what they do is the boundary's.
        """
        for each in reversed(lineage(path)):
            if self.is_foreign(each):
                return each
        return path

    def is_foreign(self, path: str) -> bool:
        """Return whether a directory belongs to another user than root."""
        info = self.cgroups.get(path)
        return info is not None and info.owner_uid not in _OWN

    def best_effort_pods(self) -> int:
        """Return the number of pods, and of cgroups outside pods, of class BE."""
        found = (info for info in self.cgroups.values() if info.kind is not CgroupKind.KUBEPODS)
        return len({info.pod_uid or info.path for info in found if self.of(info.path) is QoSClass.BE})

    @cached_property
    def _within(self) -> Mapping[str, frozenset[QoSClass]]:
        found: dict[str, set[QoSClass]] = {}
        directories = {parent(path) for path in self.cgroups}
        for path in self.cgroups:
            qos = self.of(path)
            if qos is QoSClass.NONE and path in directories:
                continue
            for each in self._counted(path, qos):
                classes = found.setdefault(each, set())
                if qos in classes:
                    break
                classes.add(qos)
        return {path: frozenset(classes) for path, classes in found.items()}

    def _counted(self, path: str, qos: QoSClass) -> Iterable[str]:
        """A pod that no source knows yet does not count for the kubelet's directory that it lies in."""
        for each in lineage(path):
            info = self.cgroups.get(each)
            if qos is QoSClass.NONE and each != path and info is not None and info.kind is CgroupKind.KUBEPODS:
                return
            yield each
