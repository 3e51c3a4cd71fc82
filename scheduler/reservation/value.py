"""A reservation as the rules see it: numbers instead of quantities, seconds instead of texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.kube.meta import LabelSelector
from api.kube.objects import Taint
from api.kube.resources import Resources

DEFAULT_TTL_SECONDS = 24 * 3600.0


class ReservationPhase(StrEnum):
    """`status.phase`; Succeeded and Failed never change again."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """True for the phases without a successor."""
        return self in (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)


class Policy(StrEnum):
    """Strictness with which consumers keep to the reserved amounts."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


@dataclass(frozen=True, slots=True)
class ObjectMatch:
    """Identity of one pod; empty fields are not compared."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class ControllerMatch:
    """An owner reference of the pod; empty fields are not compared."""

    uid: str = ""
    name: str = ""
    kind: str = ""
    api_version: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a reservation: every part that is given must match; none given matches every pod."""

    object: ObjectMatch | None = None
    controller: ControllerMatch | None = None
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class PreAllocation:
    """Taking of placed pods into a reservation, which keeps their room as they end."""

    cluster: bool = False
    """Pods with the cluster's label are taken, instead of the owners."""
    multiple: bool = False
    """Several pods may be taken, instead of one."""
    required: bool = False
    """At least one pod must be taken, even where the node has room without."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation with its phase, node and consumers."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    request: Resources = field(default_factory=dict)
    """Requests of the template's pod."""
    created_seconds: float = 0.0
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS
    """0 means no end; None that neither ttl nor expires was given."""
    expires_seconds: float | None = None
    allocate_once: bool = True
    policy: Policy = Policy.ALIGNED
    namespace: str = ""
    """Namespace whose pods alone may use it; "" for any."""
    pre_allocation: PreAllocation | None = None
    restricted_names: frozenset[str] = frozenset()
    """Resources that the Restricted policy looks at; empty means all that are reserved."""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    order: int = 0
    """Lowest above zero is preferred."""
    phase: ReservationPhase = ReservationPhase.PENDING
    node: str = ""
    allocatable: Resources = field(default_factory=dict)
    allocated: Resources = field(default_factory=dict)
    consumers: frozenset[str] = frozenset()
    """Keys of the pods that use it."""
    problem: str = ""
    """Reason why the object cannot be used as it is."""

    @property
    def remaining(self) -> Resources:
        """Amounts still free for owners."""
        return {name: max(amount - self.allocated.get(name, 0), 0) for name, amount in self.allocatable.items()}

    @property
    def end_seconds(self) -> float | None:
        """Time of expiry: the absolute time if given, else creation plus ttl; None for never."""
        if self.expires_seconds is not None:
            return self.expires_seconds
        return self.created_seconds + self.ttl_seconds if self.ttl_seconds else None

    def usable(self, now: float) -> bool:
        """Available, not expired, and not a one-time reservation that is already used."""
        ended = self.end_seconds is not None and now >= self.end_seconds
        return self.phase is ReservationPhase.AVAILABLE and not ended and not (self.allocate_once and self.consumers)
