"""An action on a pod as a value, for Events. Pure, and without the Kubernetes client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodAction:
    """An action on a cgroup that began or ended."""

    target: str
    """Path of the cgroup."""
    what: str
    """Knob and value, or the kind of a one-shot action: `cpu.max 50000 100000`."""
    strategy: str
    reason: str
    """One sentence."""
    time_seconds: float
    """Wall clock."""
    verdict: str = ""
    """`victim|rule` of the verdict that it answers."""
    ended: bool = False
