"""Extensions of a NodeMetric: open verdicts and wanted taints, written by the agent, read by scheduler and manager."""

import msgspec

from api.kube.meta import Wire

EXTENSION_INTERFERENCE = "interference"
"""Key in the `extensions` of a NodeMetric's pod, for verdicts with that pod as victim, and in those of its status, for
other victims: a `WireExtension`."""
EXTENSION_WANTED_TAINTS = "wantedTaints"
"""Key in the `extensions` of a NodeMetric's status: a list of `WantedTaint`."""

RESOURCES = ("cpu", "cpu-smt", "cache", "memory-bandwidth", "memory", "block-io", "network", "kernel")
"""Resources that workloads lose time to, as profiles and verdicts on the wire name them."""


class WireVerdict(Wire, frozen=True, kw_only=True):
    """One verdict on the wire; `culprits` as `Kind/namespace/name` or `namespace/pod`."""

    resource: str
    victim: str = ""
    """Empty in a pod's extension, where it is the pod."""
    culprits: list[str] = msgspec.field(default_factory=list)
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
