"""Status of the node: a value that the tick replaces and any thread may read."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.plugin import Unsupported


@dataclass(frozen=True, slots=True)
class Capability:
    """One probe or collector: whether it measures on this host, and the reason or the limits if not fully."""

    name: str
    available: bool
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Status of the node at one tick."""

    hostname: str
    version: str
    kernel: str
    interval_seconds: float
    capabilities: tuple[Capability, ...]
    ticks: int = 0
    last_tick_seconds: float = 0.0
    """Wall-clock time of the newest tick; 0 before the first."""
    cgroups: int = 0


def capabilities(
    able: Mapping[str, bool], refused: Mapping[str, Unsupported], partly: Mapping[str, str]
) -> tuple[Capability, ...]:
    """Return all sources by name; `partly` holds what an available one cannot measure here."""
    found = []
    for name in sorted(able):
        refusal = refused.get(name)
        reason = refusal.reason if refusal else partly.get(name, "")
        found.append(Capability(name, able[name], reason, refusal.remedy if refusal else ""))
    return tuple(found)
