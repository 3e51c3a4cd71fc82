"""Budgets of changes per minute, for the node and for each pod. Pure: the time is a parameter."""

from collections import deque
from collections.abc import Mapping

from api.cgroup_path import lineage
from api.frame import CgroupKind
from koordlet.identity.cgroup_names import kind_at

_NOTHING_KNOWN: Mapping[str, CgroupKind] = {}

_WINDOW_SECONDS = 60.0
_RESERVED_RATIO = 0.2
"""Part of the node's budget that is kept for changes without a cost: the first answer to harm never waits."""


class Budgets:
    """Counts what was granted in the last minute of monotonic time."""

    def __init__(self, node_per_minute: int, pod_per_minute: int) -> None:
        self._node = node_per_minute
        self._pod = pod_per_minute
        self._granted: deque[tuple[float, str]] = deque()
        self._counts: dict[str, int] = {}
        self.kinds = _NOTHING_KNOWN
        """Kinds of the cgroups of the newest frame, by path."""

    def limit(self, node_per_minute: int, pod_per_minute: int) -> None:
        """Set other limits; what was granted counts on."""
        self._node, self._pod = node_per_minute, pod_per_minute

    def spend(self, target: str, now_seconds: float, *, is_invisible: bool = False) -> str:
        """Grant one change and return "", or return which budget is used up.

        A part of the node's is for `is_invisible` changes alone: those of weights and `cpu.idle`.
        """
        self._expire(now_seconds)
        most = self._node if is_invisible else self._node - int(self._node * _RESERVED_RATIO)
        if len(self._granted) >= most:
            return f"the node has seen {most} changes in a minute"
        pod = pod_of(target, self.kinds)
        if self._counts.get(pod, 0) >= self._pod:
            return f"{pod} has seen {self._pod} changes in a minute"
        self._granted.append((now_seconds, pod))
        self._counts[pod] = self._counts.get(pod, 0) + 1
        return ""

    def take_back(self, target: str) -> None:
        """Forget the newest change that was granted and not made."""
        pod = pod_of(target, self.kinds)
        newest = max(position for position, (_at, granted) in enumerate(self._granted) if granted == pod)
        del self._granted[newest]
        self._count_off(pod)

    def _expire(self, now_seconds: float) -> None:
        while self._granted and self._granted[0][0] <= now_seconds - _WINDOW_SECONDS:
            _, pod = self._granted.popleft()
            self._count_off(pod)

    def _count_off(self, pod: str) -> None:
        self._counts[pod] -= 1
        if not self._counts[pod]:
            del self._counts[pod]


def pod_of(target: str, kinds: Mapping[str, CgroupKind] = _NOTHING_KNOWN) -> str:
    """Return the pod's cgroup that a target lies in, or the target itself."""
    return next((path for path in lineage(target) if kind_at(path, kinds) is CgroupKind.POD), target)
