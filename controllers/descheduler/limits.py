"""How many pods a cycle, a minute and a workload may lose."""

from collections import Counter, deque
from collections.abc import Iterable

from api.kube.times import duration_seconds
from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.configuration import DeschedulerConfiguration
from controllers.descheduler.eviction_filter import Refusal
from controllers.descheduler.plugin import Wanted
from controllers.descheduler.workloads import most_at_once
from controllers.migration.settings import MigrationArgs, ObjectLimiter

MINUTE = 60.0
REMEMBERED_SECONDS = 3600.0


class Limits:
    """Counts over cycles; `begin` starts one. Dry runs are counted in their cycle only."""

    def __init__(self, configuration: DeschedulerConfiguration) -> None:
        self._stated = configuration
        self._recent: deque[float] = deque()
        self._workloads: dict[str, deque[float]] = {}
        """Times of moves by uid: a workload that was moved lately comes after the others."""
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
        self._total = 0

    def admit(self, wanted: Wanted, cluster: Cluster, args: MigrationArgs, now: float) -> Refusal | None:
        """Count a pod, or return why it must wait."""
        stated, pod = self._stated, wanted.pod
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        for count, most, what in (
            (self._total, stated.max_no_of_pods_to_evict_total, "in this cycle"),
            (self._by_node[node], stated.max_no_of_pods_to_evict_per_node, f"of node {node} in this cycle"),
            (
                self._by_namespace[namespace],
                stated.max_no_of_pods_to_evict_per_namespace,
                f"of namespace {namespace} in this cycle",
            ),
            (self._in_last_minute(now), stated.max_no_of_pods_to_evict_per_minute, "in this minute"),
        ):
            if most is not None and count >= most:
                return Refusal(f"{count} pods {what} already", passing=True)
        workload = cluster.workload(pod)
        if workload is not None:
            limiter = args.object_limiters.get("workload", ObjectLimiter())
            seconds = duration_seconds(limiter.duration) or 0.0
            replicas = len(cluster.pods_of(workload)) if workload.replicas is None else workload.replicas
            stated_most = args.max_migrating_per_workload if limiter.max_migrating is None else limiter.max_migrating
            most = most_at_once(stated_most, replicas)
            times = self._workloads.setdefault(workload.uid, deque())
            while times and times[0] <= now - seconds:
                times.popleft()
            if seconds and len(times) >= most:
                return Refusal(f"{workload.name} was moved {len(times)} times within {limiter.duration}", passing=True)
            if not wanted.dry_run:
                times.append(now)
        self._total += 1
        self._by_node[node] += 1
        self._by_namespace[namespace] += 1
        if not wanted.dry_run:
            self._recent.append(now)
        self._forget(now)
        return None

    def _in_last_minute(self, now: float) -> int:
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        return len(self._recent)

    def _forget(self, now: float) -> None:
        for uid, times in list(self._workloads.items()):
            if not times or times[-1] <= now - REMEMBERED_SECONDS:
                del self._workloads[uid]
