"""QoS classes and owners on the tree of cgroups: what an action on a cgroup hits. Pure.

The response chooses by it the cgroups that it may limit, and the enforcer checks by it what it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from api.cgroup_path import ROOT, lineage, parent
from api.frame import UNKNOWN_UID, CgroupInfo, CgroupKind
from api.qos import QoSClass, QoSSource

_OWN = (0, UNKNOWN_UID)
_ABOVE_ALL = ("", ROOT)
"""The root, which is not in the lineage of others, and what is above it."""


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
                return self._own(info)
        return QoSClass.NONE

    def _own(self, info: CgroupInfo) -> QoSClass:
        is_believed = self.believes_kubernetes or info.qos_source is not QoSSource.KUBERNETES
        return QoSClass(info.qos) if is_believed or info.qos != QoSClass.BE else QoSClass.NONE

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
        passed_on: dict[str, QoSClass] = {}
        for path, info in self.cgroups.items():
            qos = self._own(info) if info.qos else self._passed_on(parent(path), passed_on)
            if qos is QoSClass.NONE and path in directories:
                continue
            each = path
            while qos not in (classes := found.setdefault(each, set())):
                classes.add(qos)
                each = parent(each)
                # A pod that no source knows yet does not count for the kubelet's directory that it lies in.
                if each in _ABOVE_ALL or (qos is QoSClass.NONE and self._is_kubelets(each)):
                    break
        return {path: frozenset(classes) for path, classes in found.items()}

    def _passed_on(self, path: str, known: dict[str, QoSClass]) -> QoSClass:
        """Return the class that a directory gives those below it without one, as `of` says; `known` keeps answers."""
        without: list[str] = []
        while path not in _ABOVE_ALL and path not in known:
            info = self.cgroups.get(path)
            if info is not None and (info.kind is CgroupKind.KUBEPODS or info.qos):
                known[path] = QoSClass.NONE if info.kind is CgroupKind.KUBEPODS else self._own(info)
                break
            without.append(path)
            path = parent(path)
        found = known.get(path, QoSClass.NONE)
        known.update(dict.fromkeys(without, found))
        return found

    def _is_kubelets(self, path: str) -> bool:
        info = self.cgroups.get(path)
        return info is not None and info.kind is CgroupKind.KUBEPODS
