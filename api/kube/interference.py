"""Extensions of a NodeMetric: what the agent states of interference, read by scheduler and manager."""

from typing import Annotated

import msgspec

from api.kube.meta import Wire

EXTENSION_INTERFERENCE = "interference"
"""Key in the `extensions` of a NodeMetric's pod, for verdicts with that pod as victim, and in those of its status, for
other victims: a `WireExtension`."""
EXTENSION_WANTED_TAINTS = "wantedTaints"
"""Key in the `extensions` of a NodeMetric's status: a list of `WantedTaint`."""

EXTENSION_WORKLOAD = "workload"
"""Key in the `extensions` of a NodeMetric's pod: the pod's workload as `Kind/namespace/name`."""
EXTENSION_THROTTLED = "throttled"
"""Key in the `extensions` of a NodeMetric's pod: seconds a second that its threads lost to the pod's own quotas."""
EXTENSION_WAITED = "waited"
"""Key in the `extensions` of a NodeMetric's pod: seconds a second that its threads waited for CPUs that others held."""
EXTENSION_USUAL = "usualValues"
"""Key in the `extensions` of a NodeMetric's status: a list of `WireUsualValues`."""

MOST_CULPRITS = 4
"""Of one verdict on the wire, those with the largest shares."""
RESOURCES = ("cpu", "cpu-smt", "cache", "memory-bandwidth", "memory", "block-io", "network", "kernel")
"""Resources that workloads lose time to, as profiles and verdicts on the wire name them."""


class WireVerdict(Wire, frozen=True, kw_only=True):
    """One verdict on the wire; `culprits` as `Kind/namespace/name` or `namespace/pod`."""

    resource: str
    victim: str = ""
    """Empty in a pod's extension, where it is the pod."""
    culprits: list[str] = msgspec.field(default_factory=list)
    shares: list[float] = msgspec.field(default_factory=list)
    """Of each culprit in the loss, in their order; what is missing from one has no known culprit. Empty if not told."""
    correlated: bool = False
    """Whether some of the culprits are known by correlation only."""
    lost_seconds_per_second: float = 0.0
    until: str | None = None


class WireExtension(Wire, frozen=True, kw_only=True):
    """The verdicts about one pod, or about what is no pod."""

    verdicts: list[WireVerdict] = msgspec.field(default_factory=list)


class WantedTaint(Wire, frozen=True, kw_only=True):
    """A taint that a strategy of the node asks for; the manager sets it while it is stated and not over."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    strategy: str = ""
    reason: str = ""
    since: str | None = None
    until: str | None = None
    """Time from which it counts as no longer wanted, unless it was stated again."""


POINTS = 16
"""Of a distribution on the wire."""

PointList = Annotated[list[int], msgspec.Meta(extra_json_schema={"maxItems": POINTS})]


class UsualValues(Wire, frozen=True, kw_only=True):
    """Usual values of one signal of a container at one load, as sixteen points of equal weight."""

    container: str = ""
    node_type: str = ""
    """CPU model, within which values are compared."""
    signal: str
    load_kind: int = 0
    """0: load in CPUs, 1: in requests a second."""
    octave: int = 0
    """Load from 2**octave to 2**(octave + 1)."""
    weight: float = 0.0
    """Aged number of samples behind it."""
    points: PointList = msgspec.field(default_factory=list)
    """Ascending buckets of the detector's sketch, four to the octave."""


class WireUsualValues(UsualValues, frozen=True, kw_only=True):
    """Usual values that a node learned; `weight` counts the samples since it stated them last."""

    workload: str
    """`Kind/namespace/name`."""
