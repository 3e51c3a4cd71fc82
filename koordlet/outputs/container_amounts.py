"""Requests and limits of containers from the table of pods, as profiles hold them."""

from collections.abc import Callable, Mapping

from api.frame import CgroupInfo
from api.kube.resources import CPU, MEMORY
from koordlet.identity.pods import PodTableOf
from koordlet.profiles.rows import NO_AMOUNTS

_MILLI = 1000.0


def container_amounts(pods: PodTableOf) -> Callable[[CgroupInfo], tuple[float, ...]]:
    """Return requests and limits by container: cores and bytes, NaN where there is none or its pod is not known."""

    def amounts_of(info: CgroupInfo) -> tuple[float, ...]:
        found = pods().of_container(info.container_id) if info.container_id else None
        if found is None or not found[0].spec_known:
            return NO_AMOUNTS
        container = found[1]
        return (
            _amount(container.requests, CPU) / _MILLI,
            _amount(container.limits, CPU) / _MILLI,
            _amount(container.requests, MEMORY),
            _amount(container.limits, MEMORY),
        )

    return amounts_of


def _amount(amounts: Mapping[str, int], resource: str) -> float:
    return float(amounts[resource]) if amounts.get(resource) else float("nan")
