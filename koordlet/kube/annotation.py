"""What the node's annotation says of the verdicts that stand, and when to write it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from api.kube.interference import WireVerdict
from api.kube.times import rfc3339
from api.verdicts import Verdict
from koordlet.kube.pods import PodBook

MAX_ENTRIES = 64
"""Entries in the annotation, those that lose most; all annotations of an object share 256 KiB."""
MAX_CULPRITS = 4
LEAST_SECONDS = 5.0
"""Time between two writes, whatever comes and goes: thousands of nodes share one API server."""
HELD_TIMES = 3.0
"""An entry ends so many write distances after it was written: an agent that is gone accuses nobody for long."""

_RESOURCES = {"cpu": "cpu", "memory": "memory", "blockio": "block-io", "network": "network", "cache": "cache"}
_BY_CAUSE = {
    ("cpu", "smt_sibling"): "cpu-smt",
    ("cpu", "irq"): "kernel",
    ("cpu", "cpi"): "cache",
    ("cpu", "cpi2"): "cache",
    ("memory", "bandwidth"): "memory-bandwidth",
}
"""Where a resource's name does not tell; more cycles per instruction come of what caches no longer hold."""
OWN_DOING = frozenset({"own_threads", "own_quota", "own_limit", "ancestor_quota", "ancestor_limit", "limit"})
"""Causes that lie in the victim or its limits: no neighbour is at fault, and no other node would be better."""


def entries_of(standing: Iterable[Verdict], pods: PodBook) -> tuple[WireVerdict, ...]:
    """One entry for each resource and victim that somebody else harms, biggest loss first; `until` is not set."""
    whole: dict[tuple[str, str], WireVerdict] = {}
    for verdict in standing:
        resource = _BY_CAUSE.get((verdict.resource, verdict.cause), _RESOURCES.get(verdict.resource))
        if resource is None or verdict.cause in OWN_DOING:
            continue
        victim = pods.name_of(verdict.victim)
        before = whole.get((resource, victim), WireVerdict(resource=resource, victim=victim))
        whole[resource, victim] = WireVerdict(
            resource=resource,
            victim=victim,
            culprits=list(dict.fromkeys([*before.culprits, *_culprits(verdict, pods)]))[:MAX_CULPRITS],
            lost_seconds_per_second=round(before.lost_seconds_per_second + verdict.lost_seconds_per_second, 3),
        )
    return tuple(sorted(whole.values(), key=lambda each: -each.lost_seconds_per_second)[:MAX_ENTRIES])


def _culprits(verdict: Verdict, pods: PodBook) -> list[str]:
    """Workloads of the culprits' pods, paths of other cgroups; never the victim's own pod, nor nobody in particular."""
    own = pods.of_path(verdict.victim)
    named = []
    for culprit in verdict.culprits:
        pod = pods.of_path(culprit.path)
        if culprit.path.startswith("/") and (pod is None or pod != own):
            named.append(pod.workload if pod else culprit.path)
    return named


def annotation_text(entries: Sequence[WireVerdict], until_seconds: float) -> str:
    """The annotation's value; every entry holds until the given wall-clock time."""
    until = rfc3339(until_seconds)
    return msgspec.json.encode([msgspec.structs.replace(each, until=until) for each in entries]).decode()


@dataclass(slots=True)
class AnnotationPace:
    """Decides when the annotation is written again. What it gives out counts as written."""

    every_seconds: float
    _present: bool | None = None
    """None before the first write: an agent of before may have left one."""
    _stated: frozenset[tuple[str, str]] = frozenset()
    _written_seconds: float = field(default=float("-inf"))

    def due(self, entries: Sequence[WireVerdict], now_seconds: float) -> bool:
        """Whether to write now: soon when an entry came or went, else after the pace's time; never nothing twice."""
        passed_seconds = now_seconds - self._written_seconds
        if passed_seconds < LEAST_SECONDS:
            return False
        if not entries:
            return self._present is not False
        stated = frozenset((each.resource, each.victim) for each in entries)
        return stated != self._stated or passed_seconds >= self.every_seconds

    def write(self, entries: Sequence[WireVerdict], now_seconds: float) -> str | None:
        """The value to write; None to remove the annotation."""
        self._present = bool(entries)
        self._stated = frozenset((each.resource, each.victim) for each in entries)
        self._written_seconds = now_seconds
        return annotation_text(entries, now_seconds + HELD_TIMES * self.every_seconds) if entries else None
