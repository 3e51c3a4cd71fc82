"""Node annotation of the open verdicts: its entries, its text, and the schedule of its writes. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from api.kube.interference import WireVerdict
from api.kube.times import rfc3339
from api.verdicts import Verdict, is_self_inflicted
from koordlet.kube.pods import PodIndex

MAX_ENTRIES = 64
"""Entries in the annotation, biggest losses first; all annotations of an object share 256 KiB."""
MAX_CULPRITS = 4
MIN_WRITE_SECONDS = 5.0
"""Least time between two writes: thousands of nodes share one API server."""
LIFETIME_INTERVALS = 3.0
"""Lifetime of an entry in write intervals: entries of an agent that has died end soon."""

_RESOURCES = {"cpu": "cpu", "memory": "memory", "blockio": "block-io", "network": "network", "cache": "cache"}
_BY_CAUSE = {
    ("cpu", "smt_sibling"): "cpu-smt",
    ("cpu", "irq"): "kernel",
    ("cpu", "cpi"): "cache",
    ("cpu", "cpi2"): "cache",
    ("memory", "bandwidth"): "memory-bandwidth",
}
"""Resource of a cause where the verdict's own does not say it; cycles per instruction rise when cache lines are
lost."""


def entries_of(open_verdicts: Iterable[Verdict], pods: PodIndex) -> tuple[WireVerdict, ...]:
    """Return one entry for each resource and victim that loses to others, biggest loss first; `until` is not set."""
    whole: dict[tuple[str, str], WireVerdict] = {}
    for verdict in open_verdicts:
        resource = _BY_CAUSE.get((verdict.resource, verdict.cause), _RESOURCES.get(verdict.resource))
        if resource is None or is_self_inflicted(verdict):
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


def _culprits(verdict: Verdict, pods: PodIndex) -> list[str]:
    """Return the workloads of the culprits' pods and the paths of other cgroups, without the victim's own pod."""
    own = pods.of_path(verdict.victim)
    named = []
    for culprit in verdict.culprits:
        pod = pods.of_path(culprit.path)
        if culprit.path.startswith("/") and (pod is None or pod != own):
            named.append(pod.workload if pod else culprit.path)
    return named


def annotation_text(entries: Sequence[WireVerdict], until_seconds: float) -> str:
    """Return the annotation's value; each entry is valid until the given wall-clock time."""
    until = rfc3339(until_seconds)
    return msgspec.json.encode([msgspec.structs.replace(each, until=until) for each in entries]).decode()


@dataclass(slots=True)
class AnnotationSchedule:
    """Schedule of writes of the annotation; a value taken from `write` counts as written."""

    every_seconds: float
    _present: bool | None = None
    """None before the first write: an earlier agent may have left an annotation."""
    _stated: frozenset[tuple[str, str]] = frozenset()
    _written_seconds: float = field(default=float("-inf"))

    def due(self, entries: Sequence[WireVerdict], now_seconds: float) -> bool:
        """Return whether to write now: soon when an entry came or went, else after the interval; never an absent one
        twice."""
        passed_seconds = now_seconds - self._written_seconds
        if passed_seconds < MIN_WRITE_SECONDS:
            return False
        if not entries:
            return self._present is not False
        stated = frozenset((each.resource, each.victim) for each in entries)
        return stated != self._stated or passed_seconds >= self.every_seconds

    def write(self, entries: Sequence[WireVerdict], now_seconds: float) -> str | None:
        """Return the value to write; None to remove the annotation."""
        self._present = bool(entries)
        self._stated = frozenset((each.resource, each.victim) for each in entries)
        self._written_seconds = now_seconds
        return annotation_text(entries, now_seconds + LIFETIME_INTERVALS * self.every_seconds) if entries else None
