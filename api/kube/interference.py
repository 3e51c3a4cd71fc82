"""Node annotation of the open verdicts: written by the agent, read by the scheduler."""

import msgspec

from api.kube.meta import Wire

ANNOTATION_VERDICTS = "node.koordinator.sh/interference-verdicts"
"""Node annotation: a JSON list of `WireVerdict`."""

RESOURCES = ("cpu", "cpu-smt", "cache", "memory-bandwidth", "memory", "block-io", "network", "kernel")
"""Resources that workloads lose time to, as profiles and verdicts on the wire name them."""


class WireVerdict(Wire, frozen=True, kw_only=True):
    """One verdict on the wire; `culprits` as `Kind/namespace/name` or `namespace/pod`."""

    resource: str
    victim: str = ""
    culprits: list[str] = msgspec.field(default_factory=list)
    lost_seconds_per_second: float = 0.0
    until: str | None = None
