"""A verdict: who loses how much of what to whom, as the wire carries it: `koord.verdict/v1`, an object a line."""

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA = "koord.verdict/v1"

KERNEL = "[kernel]"
"""Culprit: kernel threads and interrupts."""
NOBODY = "[other]"
"""Culprit: several folded together, nobody in particular."""
GONE = "[gone]"
"""Culprit: a cgroup that exists no more and whose path is not known."""
OWN_THREADS = "[own threads]"
OWN_QUOTA = "[own quota]"
OWN_LIMIT = "[own limit]"
ANCESTOR = "[ancestor]"
"""Culprit: a limit further up whose owner is not known."""


class VerdictState(StrEnum):
    """Where a verdict stands in its life."""

    OPEN = "open"
    UPDATE = "update"
    CLOSE = "close"


class Severity(StrEnum):
    """How far the loss is beyond what the rule tolerates."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class How(StrEnum):
    """How a culprit is known."""

    DIRECT = "direct"
    CORRELATED = "correlated"


class Culprit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One holder of the resource; `path` is a cgroup or one of the bracketed names above."""

    path: str
    share: float
    """Part of the victim's loss, 0..1; the shares of a verdict sum to at most 1."""
    how: How


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the verdict stream."""

    schema: Literal["koord.verdict/v1"] = "koord.verdict/v1"
    time: float
    """Wall-clock seconds of the frame that decided."""
    state: VerdictState
    victim: str
    """Path of the cgroup that loses."""
    resource: str
    cause: str
    lost_seconds_per_second: float
    """Smoothed in an update, the newest harmed tick weighing half; the evidence has the tick's own."""
    severity: Severity
    culprits: tuple[Culprit, ...] = ()
    """Biggest share first; empty where nothing explains the loss."""
    confidence: float = 0.0
    """Share of the loss that was measured and seen directly to be a named culprit's, 0..1."""
    evidence: dict[str, float] = {}
    rule: str = ""
    since: float = 0.0
    """Wall-clock seconds of the frame that opened it."""


def to_json(verdict: Verdict) -> bytes:
    """One line, without the line end."""
    return msgspec.json.encode(verdict)


def from_json(line: bytes) -> Verdict:
    """Raises msgspec.ValidationError for another schema or a missing field."""
    return msgspec.json.decode(line, type=Verdict)


_LOSSES = {
    ("cpu", "contention"): "waiting for CPU",
    ("cpu", "own_threads"): "waiting for CPU",
    ("cpu", "own_quota"): "throttled by its CPU quota",
    ("cpu", "ancestor_quota"): "throttled by a parent's CPU quota",
    ("cpu", "irq"): "to interrupts",
    ("cpu", "smt_sibling"): "sharing a core",
    ("memory", "reclaim"): "in reclaim",
    ("memory", "compaction"): "in memory compaction",
    ("memory", "own_limit"): "in reclaim under its memory limit",
    ("memory", "ancestor_limit"): "in reclaim under a parent's memory limit",
    ("blockio", "delay"): "waiting for disks",
    ("blockio", "limit"): "held back by an IO limit",
    ("network", "delay"): "in send queues",
    ("network", "retransmit"): "to retransmits",
    ("cache", "pressure"): "to cache misses",
    ("cpu", "cpi"): "to more cycles per instruction than usual",
    ("cpu", "cpi2"): "to more cycles per instruction than usual",
    ("memory", "bandwidth"): "sharing memory bandwidth",
    ("service", "turnaround"): "answering late",
    ("pressure", "stall"): "stalled",
}
"""How a loss reads; any other reads as its resource and cause."""

_NOBODIES = {
    KERNEL: "the kernel",
    NOBODY: "others",
    GONE: "somebody gone",
    OWN_THREADS: "itself",
    OWN_QUOTA: "its own quota",
    OWN_LIMIT: "its own limit",
    ANCESTOR: "a parent",
}


def loss_in_words(verdict: Verdict) -> str:
    """What was lost to, such as "waiting for CPU"."""
    known = _LOSSES.get((verdict.resource, verdict.cause))
    return known or f"to {verdict.resource} {verdict.cause.replace('_', ' ')}"


def culprit_in_words(path: str, name_of: Callable[[str], str] = str) -> str:
    """Who a culprit is; `name_of` gives the name of a cgroup's path."""
    return _NOBODIES.get(path) or name_of(path)


def in_words(verdict: Verdict, name_of: Callable[[str], str] = str, *, most: int = 3) -> str:
    """One sentence for people: what was lost, to what and to whom, in seconds per second.

    `name_of` gives the name that people know a path by; at most `most` culprits are named.
    """
    victim, loss, lost = name_of(verdict.victim), loss_in_words(verdict), verdict.lost_seconds_per_second
    if verdict.state is VerdictState.CLOSE:
        lasted = f", after {verdict.time - verdict.since:.0f} s" if verdict.since else ""
        return f"{victim} no longer loses notable time {loss}{lasted}"
    named = [
        f"{culprit.share * lost:.2f} to {culprit_in_words(culprit.path, name_of)}"
        f"{'' if culprit.how is How.DIRECT else ' (correlated)'}"
        for culprit in verdict.culprits[:most]
    ]
    blamed = ", ".join(named) or "nobody can be named"
    verb = "lost" if verdict.state is VerdictState.OPEN else "now loses"
    return f"{victim} {verb} {lost:.2f} s/s {loss}: {blamed}"
