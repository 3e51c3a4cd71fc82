"""Open verdicts as entries of a NodeMetric's extensions. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from api.kube.interference import MOST_CULPRITS, WireExtension, WireVerdict
from api.kube.times import rfc3339
from api.verdicts import HYPERVISOR, How, Verdict, is_self_inflicted
from koordlet.identity.pod_lookup import pod_key, pod_of
from koordlet.identity.pods import PodTable

MAX_ENTRIES = 64
"""Entries of a node, biggest losses first."""

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


def entries_of(open_verdicts: Iterable[Verdict], pods: PodTable) -> tuple[WireVerdict, ...]:
    """Return one entry for each resource and victim that loses to others, biggest loss first; `until` is not set.

    What the hypervisor gave to other guests is left out: no pod of the node causes it, and none can be blamed for it.
    """
    whole: dict[tuple[str, str], WireVerdict] = {}
    blamed: dict[tuple[str, str], dict[str, float]] = {}
    for verdict in open_verdicts:
        resource = _BY_CAUSE.get((verdict.resource, verdict.cause), _RESOURCES.get(verdict.resource))
        if resource is None or is_self_inflicted(verdict) or _is_the_hypervisors(verdict):
            continue
        victim = pod_key(pods, verdict.victim)
        before = whole.get((resource, victim), WireVerdict(resource=resource, victim=victim))
        lost_to = blamed.setdefault((resource, victim), {})
        for name, share in _culprits(verdict, pods):
            lost_to[name] = lost_to.get(name, 0.0) + share * verdict.lost_seconds_per_second
        culprits = sorted(lost_to, key=lambda name: -lost_to[name])[:MOST_CULPRITS]
        lost = before.lost_seconds_per_second + verdict.lost_seconds_per_second
        whole[resource, victim] = WireVerdict(
            resource=resource,
            victim=victim,
            culprits=culprits,
            shares=[round(lost_to[name] / lost, 3) if lost > 0 else 0.0 for name in culprits],
            correlated=before.correlated or any(each.how is How.CORRELATED for each in verdict.culprits),
            lost_seconds_per_second=round(lost, 3),
        )
    return tuple(sorted(whole.values(), key=lambda each: -each.lost_seconds_per_second)[:MAX_ENTRIES])


def _is_the_hypervisors(verdict: Verdict) -> bool:
    return bool(verdict.culprits) and all(each.path == HYPERVISOR for each in verdict.culprits)


def _culprits(verdict: Verdict, pods: PodTable) -> list[tuple[str, float]]:
    """Return the workloads of the culprits' pods and the paths of other cgroups with their shares, without the
    victim's own pod."""
    own = pod_of(pods, verdict.victim)
    named = []
    for culprit in verdict.culprits:
        pod = pod_of(pods, culprit.path)
        if culprit.path.startswith("/") and (pod is None or pod is not own):
            named.append((pod.workload or pod.name if pod else culprit.path, culprit.share))
    return named


def by_victim(
    entries: Sequence[WireVerdict], reported: Iterable[str], until_seconds: float
) -> dict[str, WireExtension]:
    """Return the extension of each reported pod that is a victim, by its name, and under `""` that of other victims.

    Each entry is valid until the given wall-clock time.
    """
    until, names = rfc3339(until_seconds), frozenset(reported)
    found: dict[str, list[WireVerdict]] = {}
    for entry in entries:
        is_pod = entry.victim in names
        stated = msgspec.structs.replace(entry, until=until, victim="" if is_pod else entry.victim)
        found.setdefault(entry.victim if is_pod else "", []).append(stated)
    return {victim: WireExtension(verdicts=verdicts) for victim, verdicts in found.items()}


def stated_keys(entries: Iterable[WireVerdict]) -> frozenset[tuple[str, str]]:
    """Return what makes a report due at once when it changes: resource and victim of each entry."""
    return frozenset((entry.resource, entry.victim) for entry in entries)


def extension(verdicts: Mapping[str, WireExtension], victim: str) -> dict[str, object]:
    """Return the plain document of one victim's extension, empty for a pod that is none."""
    document: dict[str, object] = msgspec.to_builtins(verdicts.get(victim, WireExtension()))
    return document
