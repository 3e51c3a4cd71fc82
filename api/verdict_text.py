"""Text of verdicts: words for losses and culprits, one sentence for a verdict."""

from collections.abc import Callable

from api.cgroup_path import ROOT
from api.verdicts import (
    ANCESTOR,
    GONE,
    HYPERVISOR,
    KERNEL,
    OTHER,
    OWN_LIMIT,
    OWN_PLACEMENT,
    OWN_QUOTA,
    OWN_THREADS,
    CgroupRef,
    Culprit,
    How,
    Verdict,
    VerdictState,
)

_LOSSES = {
    ("cpu", "contention"): "waiting for CPU",
    ("cpu", "own_threads"): "waiting for CPU",
    ("cpu", "own_quota"): "throttled by its CPU quota",
    ("cpu", "ancestor_quota"): "throttled by a parent's CPU quota",
    ("cpu", "irq"): "to interrupts",
    ("cpu", "steal"): "on CPUs that did not run",
    ("cpu", "smt_sibling"): "sharing a core",
    ("cpu", "forced_idle"): "on CPUs that core scheduling kept idle",
    ("memory", "reclaim"): "in reclaim",
    ("memory", "own_placement"): "on memory of another NUMA node",
    ("memory", "compaction"): "in memory compaction",
    ("memory", "own_limit"): "in reclaim under its memory limit",
    ("memory", "refault"): "reading pages again that reclaim took",
    ("memory", "ancestor_limit"): "in reclaim under a parent's memory limit",
    ("blockio", "delay"): "waiting for disks",
    ("blockio", "stalled"): "on a disk that does not answer",
    ("blockio", "limit"): "held back by an IO limit",
    ("network", "delay"): "in send queues",
    ("network", "retransmit"): "to retransmits",
    ("cache", "pressure"): "to cache misses",
    ("cpu", "cpi"): "to more cycles per instruction than usual",
    ("cpu", "cpi2"): "to more cycles per instruction than usual",
    ("memory", "bandwidth"): "sharing memory bandwidth",
    ("service", "turnaround"): "answering late",
    ("pressure", "stall"): "stalled",
    ("pressure", "io"): "waiting for IO that is no disk's of this node (network or user file system, suspended device)",
    ("pressure", "memory"): "waiting for pages read back into memory, or held back for its memory usage",
}
"""Words for a loss by resource and cause; any other reads "to <resource> <cause>"."""

_CULPRITS = {
    KERNEL: "the kernel",
    OTHER: "others",
    GONE: "a cgroup that is gone",
    OWN_THREADS: "itself",
    OWN_QUOTA: "its own quota",
    OWN_LIMIT: "its own limit",
    OWN_PLACEMENT: "its own placement",
    ANCESTOR: "a parent",
    HYPERVISOR: "the hypervisor",
    ROOT: "processes in no cgroup of their own",
}


ACCEPTED = "accepted_as_ordinary"
"""In the evidence of a verdict that has lasted so long that what its victim does counts as usual from now on."""
ENTITLED = "entitled_lost"
"""In the evidence, the part of the loss that lies below the victim's own share, in seconds per second."""
_LEAST_BEYOND = 0.1
"""Part of a loss beyond the victim's share from which it is said."""
USUAL = "usual_"
"""First part of the names by which evidence has usual values."""


KERNEL_THREADS = "kernel_threads."
"""First part of the names by which evidence has the CPUs that the kernel's own threads used, by what they do."""
_MOST = 0.5
"""Part of the kernel's threads' time from which one kind of work stands for it."""


def is_by_usual_values(verdict: Verdict) -> bool:
    """Return whether the loss is what goes beyond the victim's usual values, and so depends on what these are."""
    return any(name.startswith(USUAL) for name in verdict.evidence)


def loss_in_words(verdict: Verdict) -> str:
    """Return the words for a loss, such as "waiting for CPU"."""
    known = _LOSSES.get((verdict.resource, verdict.cause))
    return known or f"to {verdict.resource} {verdict.cause.replace('_', ' ')}"


def culprit_in_words(path: str, name_of: Callable[[str], str] = str) -> str:
    """Return the words for a culprit; `name_of` gives the name of a cgroup's path."""
    return _CULPRITS.get(path) or name_of(path)


def _culprit(culprit: Culprit, verdict: Verdict, name_of: Callable[[str], str] | None) -> str:
    if culprit.path == KERNEL:
        return f"{_CULPRITS[KERNEL]}{_kernel_work(verdict)}"
    return _CULPRITS.get(culprit.path) or cgroup_in_words(culprit.path, culprit.ref, name_of)


def _kernel_work(verdict: Verdict) -> str:
    """Return in brackets what the kernel's threads did for most of their time; nothing where nothing stands out."""
    used = {
        name.removeprefix(KERNEL_THREADS): cpus
        for name, cpus in verdict.evidence.items()
        if name.startswith(KERNEL_THREADS)
    }
    most = max(used, key=used.__getitem__, default="other")
    return "" if most == "other" or used[most] < _MOST * sum(used.values()) else f" ({most.replace('_', ' ')})"


def cgroup_in_words(path: str, ref: CgroupRef, name_of: Callable[[str], str] | None = None) -> str:
    """Return the words for a cgroup: its name, and the owner of its pod in brackets.

    `name_of` gives the display name of a path; without it the verdict's own reference does.
    """
    name = name_of(path) if name_of else ref.name or path
    return f"{name} ({ref.owner})" if ref.owner else name


def in_words(verdict: Verdict, name_of: Callable[[str], str] | None = None, *, most: int = 3) -> str:
    """Return one sentence for people: victim, loss in seconds per second, cause and culprits.

    Cgroups are named as by `cgroup_in_words`; at most `most` culprits are named.
    """
    victim = cgroup_in_words(verdict.victim, verdict.victim_ref, name_of)
    loss, lost = loss_in_words(verdict), verdict.lost_seconds_per_second
    if verdict.state is VerdictState.CLOSE:
        lasted = f", after {verdict.time - verdict.since:.0f} s" if verdict.since else ""
        if ACCEPTED in verdict.evidence:
            return f"{victim} loses no more time {loss} than has become usual for it{lasted}"
        return f"{victim} no longer loses notable time {loss}{lasted}"
    named = [
        f"{culprit.share * lost:.2f} to {_culprit(culprit, verdict, name_of)}"
        f"{'' if culprit.how is How.DIRECT else ' (correlated)'}"
        for culprit in verdict.culprits[:most]
    ]
    blamed = ", ".join(named) or "no culprit can be named"
    verb = "lost" if verdict.state is VerdictState.OPEN else "now loses"
    return f"{victim} {verb} {lost:.2f} s/s {loss}: {blamed}{_beyond(verdict)}{_acceptance(verdict)}"


def _beyond(verdict: Verdict) -> str:
    """Say how much of a loss fair division of the resource would cost the victim, too."""
    lost = verdict.lost_seconds_per_second
    beyond = lost - verdict.evidence.get(ENTITLED, lost)
    return f"; of this {beyond:.2f} s/s beyond its share" if beyond >= _LEAST_BEYOND * lost > 0 else ""


def _acceptance(verdict: Verdict) -> str:
    return "; this has lasted so long that it counts as usual from now on" if ACCEPTED in verdict.evidence else ""
