"""Which of the waiting jobs start: in order, each against the limits that those before it have used up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from api.crds.placement import PodMigrationJob
from api.kube.objects import Pod
from api.kube.times import epoch_seconds
from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.eviction_filter import EvictionFilter
from controllers.descheduler.order import rank
from controllers.migration.settings import MigrationArgs


@dataclass(frozen=True, slots=True)
class Choice:
    """A waiting job and whether it starts; `refusal` says why it does not, `ended` that it never will."""

    job: PodMigrationJob
    refusal: str = ""
    ended: bool = False


def arbitrate(cluster: Cluster, waiting: Sequence[PodMigrationJob], args: MigrationArgs) -> list[Choice]:
    """Return a choice for each waiting job."""
    if not waiting:
        return []
    checks = EvictionFilter(cluster, args)
    passed = set(cluster.passed)
    found = []
    for job in in_order(cluster, waiting):
        pod = cluster.pod_of(job)
        if pod is None or not args.arbitration_args.enabled:
            found.append(Choice(job))
            continue
        other = cluster.moving.get(pod.metadata.uid)
        if other is not None and other.metadata.uid != job.metadata.uid:
            found.append(Choice(job, f"job {other.metadata.name} moves the pod already", ended=True))
            continue
        refusal = checks.permanent(pod) or checks.passing(pod, moving=frozenset(passed))
        if refusal is None:
            passed.add(pod.metadata.uid)
        found.append(Choice(job, refusal.reason if refusal else "", ended=refusal is not None and not refusal.passing))
    return found


def in_order(cluster: Cluster, jobs: Sequence[PodMigrationJob]) -> list[PodMigrationJob]:
    """Return waiting jobs, the one to start first at the head.

    From the strongest key: Job objects of which pods move already, then pods of one Job together, the order in which
    pods are moved, fewest moves of the workload lately, newest first.
    """
    moving: Counter[str] = Counter()
    for uid in cluster.passed:
        owner = _job_of(cluster.pods_by_uid.get(uid))
        if owner:
            moving[owner] += 1
    newest = sorted(jobs, key=lambda job: -(epoch_seconds(job.metadata.creation_timestamp) or 0.0))
    by_pod = sorted(newest, key=lambda job: _rank(cluster, job))
    first: dict[str, int] = {}
    places = []
    for index, job in enumerate(by_pod):
        owner = _job_of(cluster.pod_of(job))
        places.append((-moving[owner] if owner else 0, first.setdefault(owner, index) if owner else index, index, job))
    return [job for *_, job in sorted(places, key=lambda each: each[:3])]


def _rank(cluster: Cluster, job: PodMigrationJob) -> tuple[float, ...]:
    pod = cluster.pod_of(job)
    return (*rank(pod), cluster.moves_of(pod)) if pod is not None else (-1.0,)


def _job_of(pod: Pod | None) -> str:
    owner = pod.metadata.controlled_by if pod is not None else None
    return owner.uid if owner is not None and owner.kind == "Job" else ""
