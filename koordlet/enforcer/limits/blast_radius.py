"""Blast radius: how many best-effort pods are limited or frozen at once in answer to verdicts. Pure.

What is in effect already stays; of what comes anew the gentler goes first. Rungs without a cost of their own (weight,
`cpu.idle`) are not counted. The kubelet's best-effort directory counts as one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from api.frame import CgroupKind
from api.intents import Knob, Setting, Strength
from koordlet.enforcer.limits.budgets import pod_of

LEAST_LIMITED = 4
"""Pods that may be limited however few there are."""
_FOR_VICTIMS = frozenset({Knob.CPU_BURST, Knob.RESCTRL_SCHEMATA})
"""Knobs that limit no cgroup: a burst gives more, and a resource group counts by its members."""


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """Bounds of one node."""

    limited_ratio: float
    """Of the best-effort pods and cgroups."""
    frozen: int

    def exceeding(
        self,
        settings: Iterable[Setting],
        in_effect: Collection[tuple[str, Knob]],
        pods: int,
        kinds: Mapping[str, CgroupKind],
    ) -> list[tuple[Setting, str]]:
        """Settings that would limit or freeze too many, each with the reason; `pods` is how many there are."""
        limit = max(int(pods * self.limited_ratio), LEAST_LIMITED)
        limited: set[str] = set()
        frozen: set[str] = set()
        refused: list[tuple[Setting, str]] = []
        counted = [one for one in settings if one.strength > Strength.INVISIBLE and one.knob not in _FOR_VICTIMS]
        order = sorted(counted, key=lambda one: ((one.target, one.knob) not in in_effect, one.strength, one.target))
        for one in order:
            pod = pod_of(one.target, kinds)
            stands = (one.target, one.knob) in in_effect
            if one.knob is Knob.FREEZE and pod not in frozen and len(frozen) >= self.frozen and not stands:
                refused.append((one, f"{len(frozen)} are frozen already ([enforcer] max_frozen)"))
                continue
            if pod not in limited and len(limited) >= limit and not stands:
                reason = f"{len(limited)} of {pods} best-effort pods are limited already ([enforcer] max_limited_ratio)"
                refused.append((one, reason))
                continue
            limited.add(pod)
            if one.knob is Knob.FREEZE:
                frozen.add(pod)
        return refused
