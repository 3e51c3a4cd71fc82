"""What the cluster page shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from api.kube.losses import Loss


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node."""

    name: str
    lost: float
    """Seconds per second, of all victims."""
    victims: int
    worst: Loss | None
    cpu_used: float | None
    """Share of the node's CPUs; None where it is not told."""
    slow_ratio: float | None
    """How much longer its workloads take than in the fleet; None where it is not marked."""
    age_seconds: float | None
    """Of its report; None where it never reported."""


@dataclass(frozen=True, slots=True)
class Trait:
    """Figures of one resource."""

    sensitivity: float
    """Lost seconds per second per unit of a neighbour's pressure."""
    error: float | None
    """Half of its interval of 90 %."""
    aggressiveness: float
    """Pressure that one replica exerts."""


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload as `Kind/namespace/name`."""

    name: str
    traits: Mapping[str, Trait]
    """By resource; empty where no profile is known."""
    replicas: int
    """Pods that nodes report."""
    nodes: int
    lost: float
    """Seconds per second that its pods lose now."""
    costs: float
    """Seconds per second that others lose to it now."""

    @property
    def most_sensitive(self) -> tuple[str, Trait] | None:
        """Resource for which it is most sensitive; None without any sensitivity."""
        return self._most(lambda trait: trait.sensitivity)

    @property
    def most_aggressive(self) -> tuple[str, Trait] | None:
        """Resource on which it exerts most pressure; None without any."""
        return self._most(lambda trait: trait.aggressiveness)

    def _most(self, figure: Callable[[Trait], float]) -> tuple[str, Trait] | None:
        name = max(self.traits, key=lambda each: (figure(self.traits[each]), each), default="")
        return (name, self.traits[name]) if name and figure(self.traits[name]) > 0 else None


@dataclass(frozen=True, slots=True)
class PairRow:
    """A victim and a neighbour that costs it time."""

    victim: str
    neighbour: str
    expected: float
    """Seconds per second that one replica of the neighbour costs on the victim's node, by the profiles."""
    error: float
    """Half of the interval of 90 % of the victim's part in it."""
    resources: Mapping[str, float]
    """Of `expected`, or of `now` where no profile is known."""
    now: float
    """Seconds per second in open verdicts."""
    together: Sequence[str]
    """Nodes with pods of both."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything, at one moment."""

    now: float
    version: str
    leading: bool
    nodes: Sequence[NodeRow]
    """Those with the largest loss first."""
    workloads: Sequence[WorkloadRow]
    pairs: Sequence[PairRow]
    """Those with the largest loss first, expected or open."""
    losses: Sequence[Loss]
    """Open verdicts, the largest first."""
    profiles: int
    """WorkloadProfiles with figures."""
