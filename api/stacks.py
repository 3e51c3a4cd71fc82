"""Stacks of a verdict's culprits and victim, with function names; schema `koord.stacks/v1`."""

from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA = "koord.stacks/v1"


class StackKind(StrEnum):
    """State of the thread."""

    ON_CPU = "on_cpu"
    PREEMPTED = "preempted"
    """It waited for a CPU, which was taken from it."""
    BLOCKED = "blocked"
    """It waited for anything else, and for a CPU after that."""


class StackRole(StrEnum):
    """Part in the verdict."""

    CULPRIT = "culprit"
    VICTIM = "victim"


class Stack(msgspec.Struct, frozen=True):
    """One stack, all processes of one name together."""

    kind: StackKind
    frames: tuple[str, ...]
    """Outermost first: name of the process, functions of the program, functions of the kernel with `_[k]`."""
    count: int
    """Samples while it ran, else waits."""
    seconds: float
    """Time in it: samples over their rate, or the sum of its waits."""


class StackSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Stacks of one cgroup and those below it."""

    path: str
    role: StackRole
    stacks: tuple[Stack, ...]
    """The longest first; what is beyond a bound is one stack `[others]` of each kind."""
    frames: int
    """Frames seen, each as often as its stack."""
    unresolved_frames: int
    """Of these, those without a function's name."""
    unseen_seconds: dict[StackKind, float]
    """Time of waits of which no stack was taken."""


class StackEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: the seconds after a verdict opened."""

    schema: Literal["koord.stacks/v1"] = "koord.stacks/v1"
    time: float
    """Wall-clock seconds of the end."""
    seconds: float
    hz: int
    victim: str
    rule: str
    series: tuple[StackSeries, ...]
    lost: dict[str, int] = {}
    """What found no room in the kernel, by place."""
    notes: tuple[str, ...] = ()
    """Reasons for missing names."""
    cpu_seconds: float = 0.0
    """CPU time of the agent's thread that took the stacks and gave names."""


def unresolved_ratio(series: StackSeries) -> float:
    """Share of the frames without a function's name, 0..1; 0 where there are none."""
    return series.unresolved_frames / series.frames if series.frames else 0.0


def to_json(evidence: StackEvidence) -> bytes:
    """Return one line, without the line end."""
    return msgspec.json.encode(evidence)


def from_json(line: bytes) -> StackEvidence:
    """Return the evidence; raises msgspec.ValidationError for another schema or a missing field."""
    return msgspec.json.decode(line, type=StackEvidence)
