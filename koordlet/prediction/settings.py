"""Settings of [prediction]: peaks of pods and of the node, from what was used before."""

from typing import Annotated

import msgspec
from msgspec import Meta


class PredictionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[prediction]: peaks reported in the NodeMetric of a node whose usage is reported."""

    enabled: bool = True
    """Whether usage is learned and prod reclaimable reported; without `[cluster] node_metric` nothing is."""
    directory: str = "/var/lib/koord/prediction"
    """Directory of the checkpoints, one file for each pod; empty keeps them in memory only."""
    safety_margin_percent: Annotated[int, Meta(ge=0, le=1000)] = 10
    """Percent by which a peak is assumed higher than its percentile."""
    cold_start_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 86_400.0
    """Age of a pod up to which nothing of its request is reported as reclaimable."""
    train_seconds: Annotated[float, Meta(ge=10, le=3600)] = 60.0
    """Time between two samples; each is the 90th percentile of the usage since the one before."""
    expire_seconds: Annotated[float, Meta(ge=60, le=604_800)] = 1800.0
    """Time without a sample after which a pod is forgotten, with its checkpoint."""
    save_seconds: Annotated[float, Meta(ge=60, le=86_400)] = 600.0
    """Least time between two checkpoints of a pod; at most 12 are written in a step, oldest first."""
