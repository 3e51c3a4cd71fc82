"""What each cgroup did to others, as series of its own: one for each cgroup and resource, however many its victims.

The series of pairs name a victim's worst culprits, so one that costs many cgroups a little each is in none of them.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import Metric as Family

from api.frame import KERNEL_ID, Table
from koordlet.metrics.labels import CGROUP_LABELS, NO_POD, Labels
from koordlet.snapshot.document import KERNEL_PATH

RESOURCE = "resource"
INFLICTED = "koord_cgroup_inflicted_seconds"
BY_AGENT = "koord_agent_inflicted_seconds"
FAMILIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    INFLICTED: (
        "counter",
        (*CGROUP_LABELS, RESOURCE),
        "Blame on a cgroup by all others together, as the series of pairs count it",
    ),
    BY_AGENT: ("counter", (RESOURCE,), "Of that the part of the agent's own cgroup, where it has one of its own"),
}
"""Kind, labels and meaning by name without `_total`."""
_KERNEL: Labels = (*NO_POD, KERNEL_PATH, KERNEL_PATH, "")


class Inflicted:
    """Seconds by culprit and resource; culprits come by seat, 0 for all without one, and the kernel has its own row."""

    def __init__(self, seats: int, is_agent: Callable[[int], bool]) -> None:
        """`is_agent` says whether an id is that of the agent's own cgroup."""
        self._is_agent = is_agent
        self._kernel = seats + 1
        self._totals: dict[str, NDArray[np.float64]] = {}
        self._by_agent: dict[str, float] = {}

    def add(self, table: str, grown: Table, seconds: NDArray[np.float64], seat_of: dict[int, int]) -> None:
        """Add what the pairs of a blame table grew by."""
        resource = table.removesuffix(".blame")
        totals = self._totals.setdefault(resource, np.zeros(self._kernel + 1))
        culprits = grown.keys["culprit"].astype(np.uint64)
        others = np.flatnonzero((seconds > 0) & (culprits != grown.ids))
        distinct, inverse = np.unique(culprits[others], return_inverse=True)
        sums = np.bincount(inverse, seconds[others], len(distinct))
        for culprit, amount in zip(distinct.tolist(), sums.tolist(), strict=True):
            totals[self._kernel if culprit == KERNEL_ID else seat_of.get(culprit, 0)] += amount
            if self._is_agent(culprit):
                self._by_agent[resource] = self._by_agent.get(resource, 0.0) + amount

    def forget(self, seat: int) -> None:
        """Drop the series of a cgroup that loses its seat."""
        for totals in self._totals.values():
            totals[seat] = 0.0

    def families(self, labels: dict[int, Labels]) -> Iterator[Family]:
        """Families of what is above zero; `labels` are those of the seats."""
        inflicted, by_agent = (
            CounterMetricFamily(name, FAMILIES[name][2], labels=FAMILIES[name][1]) for name in FAMILIES
        )
        for resource, totals in self._totals.items():
            for seat in np.flatnonzero(totals).tolist():
                row = _KERNEL if seat == self._kernel else labels.get(seat)
                if row is not None:
                    inflicted.add_metric((*row, resource), float(totals[seat]))
        for resource, amount in self._by_agent.items():
            by_agent.add_metric((resource,), amount)
        yield from (family for family in (inflicted, by_agent) if family.samples)
