"""Rights: of which classes a strategy may limit, reclaim from or evict cgroups. Pure.

Nothing is anybody's until settings, labels or Kubernetes say so: a cgroup without a class, and a directory that holds
one, is never given less. In answer to verdicts only the classes of `[response] limited_classes` are limited, by a
strategy only BE and the classes that its own settings name (`Strategy.limited_classes`). Below a directory that belongs
to another user only that directory itself is acted upon: its owner writes the files below it at will.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from api.cgroup_path import lineage, parent
from api.frame import UNKNOWN_UID, CgroupInfo, CgroupKind
from api.qos import QoSClass, QoSSource

Classes = frozenset[QoSClass]
BEST_EFFORT: Classes = frozenset({QoSClass.BE})
EVERY_CLASS: Classes = frozenset(QoSClass) - {QoSClass.NONE}
_OWN = (0, UNKNOWN_UID)


@dataclass(frozen=True, slots=True)
class Rights:
    """What each strategy may act upon."""

    classes_of: Callable[[str], Classes | None] = lambda _strategy: BEST_EFFORT
    """Classes that a strategy may give less to, by its name; None is any cgroup, with a class or without."""
    believes_kubernetes: bool = True
    """Whether a BestEffort pod without a label counts as BE. Not where no source tells of pods: any may be critical."""


UNRESTRICTED = Rights(lambda _strategy: None)
"""Rights of an unrestricted enforcer; `koordlet.control.control_loop` opens none such."""


@dataclass(frozen=True)
class RightsOnFrame:
    """Rights on the cgroups of the newest frame."""

    rights: Rights = UNRESTRICTED
    cgroups: Mapping[str, CgroupInfo] = field(default_factory=dict)
    """By path."""

    def refusal(self, strategy: str, target: str) -> str:
        """Reason why a strategy may not give a cgroup less; empty if it may."""
        allowed = self.rights.classes_of(strategy)
        if allowed is None:
            return ""
        boundary = self.boundary_of(target)
        if boundary != target:
            return f"{target} lies below {boundary}, which is another user's: only that may be acted upon"
        denied = sorted(self.classes_within(target) - allowed)
        if not denied:
            return ""
        names = ", ".join(sorted(allowed)) or "none"
        what = f"of class {denied[-1]}" if denied[-1] else "without a class"
        return f"{target} is or holds a cgroup {what}, and {strategy} may limit only {names}"

    def boundary_of(self, path: str) -> str:
        """The first directory from the root down that belongs to another user; the path itself without one."""
        for each in reversed(lineage(path)):
            info = self.cgroups.get(each)
            if info is not None and info.owner_uid not in _OWN:
                return each
        return path

    def classes_within(self, path: str) -> Classes:
        """Classes of a cgroup and those below it; a directory without a class counts by what lives in it."""
        return self._within.get(path) or frozenset({self._class_of(path)})

    def best_effort_pods(self) -> int:
        """Number of pods, and of cgroups outside pods, of class BE."""
        found = (info for info in self.cgroups.values() if info.kind is not CgroupKind.KUBEPODS)
        return len({info.pod_uid or info.path for info in found if self._class_of(info.path) is QoSClass.BE})

    def _class_of(self, path: str) -> QoSClass:
        """A cgroup's class, or its nearest ancestor's; the kubelet's directories pass none on."""
        for each in lineage(path):
            info = self.cgroups.get(each)
            if info is None or (each != path and info.kind is CgroupKind.KUBEPODS):
                if info is not None:
                    break
                continue
            if info.qos:
                is_believed = self.rights.believes_kubernetes or info.qos_source is not QoSSource.KUBERNETES
                return QoSClass(info.qos) if is_believed or info.qos != QoSClass.BE else QoSClass.NONE
        return QoSClass.NONE

    @cached_property
    def _within(self) -> Mapping[str, Classes]:
        found: dict[str, set[QoSClass]] = {}
        directories = {parent(path) for path in self.cgroups}
        for path in self.cgroups:
            qos = self._class_of(path)
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


NO_FRAME = RightsOnFrame()
