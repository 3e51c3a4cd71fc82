"""A verdict: who loses how much of what to whom, as the wire carries it: `koord.verdict/v1`, an object a line."""

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


class State(StrEnum):
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
    state: State
    victim: str
    """Path of the cgroup that loses."""
    resource: str
    cause: str
    lost_seconds_per_second: float
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


def in_words(verdict: Verdict) -> str:
    """One sentence for people: what was lost, to what and to whom, in seconds per second."""
    lost = verdict.lost_seconds_per_second
    if verdict.state is State.CLOSE:
        return f"{verdict.victim} no longer loses notable time to {verdict.resource} {verdict.cause}"
    named = [
        f"{culprit.share * lost:.2f} to {culprit.path}{'' if culprit.how is How.DIRECT else ' (correlated)'}"
        for culprit in verdict.culprits
    ]
    blamed = ", ".join(named) or "nobody can be named"
    return f"{verdict.victim} lost {lost:.2f} s/s to {verdict.resource} {verdict.cause}: {blamed}"
