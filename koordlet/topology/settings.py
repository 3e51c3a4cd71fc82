"""Settings of [topology]: whether the scheduler is told of the node's CPUs."""

import msgspec


class TopologySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[topology]: the node's CPUs for the scheduler; off by default."""

    report: bool = False
    """Write the node's NodeResourceTopology object; needs `[cluster] enabled`."""
