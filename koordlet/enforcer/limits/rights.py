"""Rights: of which classes a strategy may limit, reclaim from or evict cgroups. Pure.

Nothing is anybody's until settings, labels or Kubernetes say so: a cgroup without a class, and a directory that holds
one, is never given less. In answer to verdicts only the classes of `[response] limited_classes` are limited, by a
strategy only BE and the classes that its own settings name (`Strategy.limited_classes`). Below a directory that belongs
to another user only that directory itself is acted upon: its owner writes the files below it at will.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from api.frame import CgroupInfo
from api.qos import QoSClass
from api.tree_classes import TreeClasses

Classes = frozenset[QoSClass]
BEST_EFFORT: Classes = frozenset({QoSClass.BE})
EVERY_CLASS: Classes = frozenset(QoSClass) - {QoSClass.NONE}


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
    classes: TreeClasses = field(default_factory=TreeClasses)

    @classmethod
    def of(cls, rights: Rights, cgroups: Iterable[CgroupInfo]) -> "RightsOnFrame":
        """These rights on these cgroups."""
        return cls(rights, TreeClasses({info.path: info for info in cgroups}, rights.believes_kubernetes))

    def refusal(self, strategy: str, target: str) -> str:
        """Reason why a strategy may not give a cgroup less; empty if it may."""
        allowed = self.rights.classes_of(strategy)
        if allowed is None:
            return ""
        boundary = self.classes.boundary_of(target)
        if boundary != target:
            return f"{target} lies below {boundary}, which is another user's: only that may be acted upon"
        denied = sorted(self.classes.within(target) - allowed)
        if not denied:
            return ""
        names = ", ".join(sorted(allowed)) or "none"
        what = f"of class {denied[-1]}" if denied[-1] else "without a class"
        return f"{target} is or holds a cgroup {what}, and {strategy} may limit only {names}"


NO_FRAME = RightsOnFrame()
