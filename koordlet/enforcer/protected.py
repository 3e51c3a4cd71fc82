"""Protected cgroups, which are never changed but to be given more. Pure.

Protected are: cgroups that match a pattern of the settings, that are annotated so, of class SYSTEM, LSE or LSR, the
agent's own, and every cgroup above one of these (what is done to a parent is done to its children).

A protected cgroup may only be given more, by a knob whose specification says `may_widen_protected`. The class of a
cgroup that has none is that of its nearest classified ancestor. Protocol state of an LSE or LSR pod (its CPUs, its
memory QoS) is what the protocol gives that pod: its class does not stand in the way.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from functools import cached_property

from api.cgroup_path import ancestors, lineage
from api.frame import CgroupKind
from api.intents import Knob
from api.qos import QoSClass, is_protected
from koordlet.enforcer import kubelet_files
from koordlet.enforcer.limits.rights import NO_FRAME, RightsOnFrame
from koordlet.host.knobs.direction import Direction
from koordlet.host.knobs.spec import Scope
from koordlet.host.knobs.table import KNOBS
from koordlet.identity.cgroup_names import kind_at, name_cgroup
from koordlet.identity.kubelet_policy import NO_KUBELET_POLICY, KubeletPolicy

_NO_STATE = frozenset({Knob.CPU_IDLE, Knob.FREEZE})
"""Knobs that no protocol state of a protected pod tightens."""
_OF_THE_NODE = frozenset({Knob.SYSCTL, Knob.SCHED_FEATURE, Knob.IO_COST_QOS, Knob.IO_COST_MODEL, Knob.NET_CLASS})
"""Knobs that change the node for every cgroup: a traffic class replaces the queue of the link."""


@dataclass(frozen=True)
class ProtectedCgroups:
    """Rules of protection for the cgroups of the newest frame; `classes`, `annotated` and `kinds` are by path."""

    patterns: tuple[str, ...]
    classes: Mapping[str, QoSClass]
    annotated: frozenset[str]
    own: str
    """Path of the agent's own cgroup; empty if it is in none."""
    only: tuple[str, ...] = ()
    """Patterns of the cgroups that may be changed at all, widening included; empty is all."""
    kinds: Mapping[str, CgroupKind] = field(default_factory=dict)
    pod_uids: Mapping[str, str] = field(default_factory=dict)
    """Pod that a cgroup is or lies in, by path."""
    kubelet: KubeletPolicy = NO_KUBELET_POLICY
    rights: RightsOnFrame = NO_FRAME
    """Classes that each strategy may give less to."""
    applications: frozenset[str] = frozenset()
    """Cgroups of host applications that the NodeSLO names, and those below them."""

    def is_excluded(self, target: str) -> bool:
        """Return whether `[enforcer] only` excludes a cgroup from any change."""
        return bool(self.only) and not any(fnmatchcase(target, pattern) for pattern in self.only)

    def class_of(self, target: str) -> QoSClass:
        """Its own class, or its nearest ancestor's."""
        for path in lineage(target):
            if self.classes.get(path, QoSClass.NONE) != QoSClass.NONE:
                return self.classes[path]
        return QoSClass.NONE

    def reason(self, target: str) -> str:
        """Reason why a cgroup is protected; empty if it is not."""
        if self.is_excluded(target):
            return f"{target} is not among those that [enforcer] only names"
        if target not in self._reasons:
            self._reasons[target] = self._find_reason(target)
        return self._reasons[target]

    def _find_reason(self, target: str) -> str:
        for path in lineage(target):
            for pattern in self.patterns:
                if path != "/" and fnmatchcase(path, pattern):
                    return f"{path} matches the protected pattern {pattern}"
            if path in self.annotated:
                return f"{path} is annotated as protected"
        if target == "/" and "/" in self.patterns:
            return "the root cgroup holds all others"
        return self._class_reason(target) or self._above.get(target, "")

    def _class_reason(self, target: str) -> str:
        qos = self.class_of(target)
        return f"{target} is of class {qos}" if is_protected(qos) else ""

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Cache of reasons: each step asks about the same cgroups."""
        return {}

    @cached_property
    def _above(self) -> dict[str, str]:
        """Reason for every cgroup that has a protected one below it."""
        found: dict[str, str] = {}
        if self.own:
            found |= dict.fromkeys(lineage(self.own), "the agent itself runs there")
        matches = re.compile("|".join(map(translate, self.patterns)) or "(?!)").match
        for path in filter(matches, self.classes):
            found |= dict.fromkeys(ancestors(path), f"{path} below it matches a protected pattern")
        for path, qos in self.classes.items():
            if is_protected(qos):
                found |= dict.fromkeys(ancestors(path), f"{path} below it is of class {qos}")
        for path in self.annotated:
            # A pod's author writes the annotation: it does not reach the directory of all pods of a class.
            above = [each for each in ancestors(path) if kind_at(each, self.kinds) is not CgroupKind.KUBEPODS]
            found |= dict.fromkeys(above, f"{path} below it is annotated as protected")
        return found

    def refusal(self, strategy: str, target: str) -> str:
        """Reason why a strategy may not take from a cgroup, protected or none of its own; empty if it may."""
        return self.reason(target) or self.rights.refusal(strategy, target)

    def forbids(
        self, knob: Knob, target: str, direction: Direction, *, strategy: str = "", protocol_state: bool = False
    ) -> str:
        """Reason why a setting of a strategy may not be made; empty if it may."""
        spec = KNOBS[knob]
        if self.only and knob in _OF_THE_NODE:
            return f"{knob} changes the whole node, and [enforcer] only names cgroups"
        if not spec.targets_cgroup or (spec.scope == Scope.ROOT_CGROUP and target == "/"):
            return ""
        uid = self.pod_uids.get(target) or name_cgroup(target).pod_uid
        kubelets = kubelet_files.refusal(knob, target, kind_at(target, self.kinds), direction, self.kubelet, uid)
        if kubelets:
            return kubelets
        widens = direction in (Direction.WIDER, Direction.SAME)
        if spec.may_widen_protected and widens and not self.is_excluded(target):
            return ""
        reason = self.reason(target)
        if protocol_state and reason and reason == self._class_reason(target) and knob not in _NO_STATE:
            reason = "" if self.class_of(target) != QoSClass.SYSTEM else reason
        return reason or self.rights.refusal(strategy, target)
