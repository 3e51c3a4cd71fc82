"""Evictions that began, by namespace, owner and the strategy that asked: what owners of batch work lost, and why."""

from collections import Counter
from collections.abc import Iterable, Sequence

from api.frame import CgroupInfo
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EVICT, EnforcerEvent

BEGUN = frozenset({Outcome.TERMINATED, Outcome.EVICTED})
MOST_OWNERS = 200
"""Owners with a count of their own; further ones count as `[other]`."""
OTHER = "[other]"
"""No namespace is called so."""


class EvictionCounts:
    """Grows for as long as the agent runs."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By namespace, name of the workload (of what is no pod its own) and strategy."""

    def note(self, events: Iterable[EnforcerEvent], cgroups: Sequence[CgroupInfo]) -> None:
        """Count the evictions among the events of a step over these cgroups."""
        begun = [event for event in events if event.knob == EVICT and event.outcome in BEGUN]
        if not begun:
            return
        infos = {info.path: info for info in cgroups}
        for event in begun:
            info = infos.get(event.target)
            namespace = info.namespace if info is not None else ""
            name = info.workload.rpartition("/")[2] if info is not None else ""
            key = (namespace, name or event.target.rpartition("/")[2], event.strategy)
            if key not in self.counts and len(self.counts) >= MOST_OWNERS:
                key = (OTHER, OTHER, event.strategy)
            self.counts[key] += 1
