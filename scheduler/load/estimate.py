"""Expected usage of a pod before it is measured: its request or limit, scaled."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.kube.resources import CPU, MEMORY
from api.qos import PriorityBand

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"

DEFAULT_CPU_MILLICORES = 250
DEFAULT_MEMORY_BYTES = 200 << 20

_DEFAULTS = {
    CPU: DEFAULT_CPU_MILLICORES,
    BATCH_CPU: DEFAULT_CPU_MILLICORES,
    MEMORY: DEFAULT_MEMORY_BYTES,
    BATCH_MEMORY: DEFAULT_MEMORY_BYTES,
}
_BAND_NAMES: dict[PriorityBand, dict[str, str]] = {
    PriorityBand.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityBand.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
    PriorityBand.FREE: {CPU: "", MEMORY: ""},
}


@dataclass(frozen=True, slots=True)
class ScalingFactors:
    """Percent of the request or limit that a pod is expected to use, per resource."""

    percents: Mapping[str, int] = field(default_factory=lambda: {CPU: 85, MEMORY: 70})

    def overridden(self, percents: Mapping[str, int]) -> "ScalingFactors":
        """These factors with some replaced, as a pod's own annotation asks for."""
        return ScalingFactors({**self.percents, **percents})


def band_resource(band: PriorityBand, name: str) -> str:
    """The resource that carries a pod's cpu or memory in its band; empty where the band has none."""
    return _BAND_NAMES.get(band, {}).get(name, name)


def estimated_usage(
    requests: Mapping[str, int], limits: Mapping[str, int], *, band: PriorityBand, factors: ScalingFactors
) -> dict[str, int]:
    """Expected usage per resource named by the factors; batch and mid amounts count under cpu and memory.

    Per resource: limit if it exceeds the request, else the request; times the factor, rounded half up, and
    never above the limit. A pod that asks for nothing is taken for 250 millicores and 200 MiB, unscaled.
    """
    return {
        name: _estimate(requests, limits, name=band_resource(band, name), percent=percent)
        for name, percent in factors.percents.items()
    }


def _estimate(requests: Mapping[str, int], limits: Mapping[str, int], *, name: str, percent: int) -> int:
    limit = limits.get(name, 0)
    amount = max(requests.get(name, 0), limit)
    if amount == 0:
        return _DEFAULTS.get(name, 0)
    scaled = (2 * amount * percent + 100) // 200
    return min(scaled, limit) if limit > 0 else scaled
