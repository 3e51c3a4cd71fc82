"""How many pods a cycle, a minute and a workload may lose."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from api.kube.times import duration_seconds
from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.configuration import DeschedulerConfiguration
from controllers.descheduler.eviction_filter import Refusal
from controllers.descheduler.plugin import Wanted
from controllers.descheduler.workloads import most_at_once
from controllers.migration.settings import MigrationArgs

MINUTE = 60.0
UNPLACED_SECONDS = 600.0
"""Time for which a pod that the scheduler had no node for is not asked about again; others take its turn."""


@dataclass(frozen=True, slots=True)
class _Charge:
    """What one pod counts for, until it is known whether its job was made."""

    seconds: float
    workload: str
    node: str
    namespace: str


class Limits:
    """Counts over cycles; `begin` starts one. Dry runs are counted in their cycle only."""

    def __init__(self, configuration: DeschedulerConfiguration, longest_seconds: float = 0.0) -> None:
        """`longest_seconds` is the longest time for which a profile limits the moves of a workload."""
        self._stated = configuration
        self._longest_seconds = longest_seconds
        self._recent: deque[float] = deque()
        self._workloads: dict[str, deque[float]] = {}
        """Times of moves by uid of the workload."""
        self._charges: dict[str, _Charge] = {}
        """By uid of the pod."""
        self._unplaced: dict[str, float] = {}
        """When pods without a place may be asked about again, by uid."""
        self._by_node: Counter[str] = Counter()
        self._by_namespace: Counter[str] = Counter()
        self._total = 0

    def recall(self, jobs: Iterable[tuple[str, float | None]]) -> None:
        """Count jobs that a process before made: uid of the workload and time, seconds since the epoch."""
        for uid, created in sorted((uid, created) for uid, created in jobs if created is not None):
            self._recent.append(created)
            if uid:
                self._workloads.setdefault(uid, deque()).append(created)
        self._recent = deque(sorted(self._recent))

    def begin(self) -> None:
        """Start a cycle."""
        self._by_node.clear()
        self._by_namespace.clear()
        self._charges.clear()
        self._total = 0

    def admit(self, wanted: Wanted, cluster: Cluster, args: MigrationArgs, now: float) -> Refusal | None:
        """Count a pod, or return why it must wait."""
        stated, pod = self._stated, wanted.pod
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        self._forget(now)
        if pod.metadata.uid in self._unplaced:
            return Refusal("the scheduler had no node for it lately", passing=True)
        for count, most, what, limit in (
            (self._total, stated.max_no_of_pods_to_evict_total, "in this cycle", ""),
            (self._by_node[node], stated.max_no_of_pods_to_evict_per_node, f"of node {node} in this cycle", "node"),
            (
                self._by_namespace[namespace],
                stated.max_no_of_pods_to_evict_per_namespace,
                f"of namespace {namespace} in this cycle",
                "namespace",
            ),
            (len(self._recent), stated.max_no_of_pods_to_evict_per_minute, "in this minute", ""),
        ):
            if most is not None and count >= most:
                return Refusal(f"{count} pods {what} already", passing=True, spent=not limit, limit=limit)
        workload = cluster.workload(pod)
        if workload is not None:
            limiter = args.workload_limiter
            seconds = duration_seconds(limiter.duration) or 0.0
            replicas = len(cluster.pods_of(workload)) if workload.replicas is None else workload.replicas
            stated_most = args.max_migrating_per_workload if limiter.max_migrating is None else limiter.max_migrating
            most = most_at_once(stated_most, replicas)
            moves = sum(each > now - seconds for each in self._workloads.get(workload.uid, ()))
            if seconds and moves >= most:
                return Refusal(f"{workload.name} was moved {moves} times within {limiter.duration}", passing=True)
        self._total += 1
        self._by_node[node] += 1
        self._by_namespace[namespace] += 1
        if not wanted.dry_run:
            self._recent.append(now)
            if workload is not None:
                self._workloads.setdefault(workload.uid, deque()).append(now)
            uid = workload.uid if workload is not None else ""
            self._charges[pod.metadata.uid] = _Charge(now, uid, node, namespace)
        return None

    def give_back(self, pod_uid: str, now: float, *, unplaced: bool) -> None:
        """Take back what a pod of this cycle was counted for: its job was not made."""
        if unplaced:
            self._unplaced[pod_uid] = now + UNPLACED_SECONDS
        charge = self._charges.pop(pod_uid, None)
        if charge is None:
            return
        self._total -= 1
        self._by_node[charge.node] -= 1
        self._by_namespace[charge.namespace] -= 1
        for times in (self._recent, self._workloads.get(charge.workload, deque())):
            if charge.seconds in times:
                times.remove(charge.seconds)

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        for uid, times in list(self._workloads.items()):
            while times and times[0] <= now - self._longest_seconds:
                times.popleft()
            if not times:
                del self._workloads[uid]
        self._unplaced = {uid: until for uid, until in self._unplaced.items() if until > now}
