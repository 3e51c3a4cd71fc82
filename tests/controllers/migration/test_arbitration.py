"""Arbitration: who starts, who waits, who never does, in Koordinator's order."""

from typing import Any

import msgspec

from api.crds.placement import PodMigrationJob
from api.kube.meta import ObjectMeta
from api.kube.times import rfc3339
from controllers.descheduler import order
from controllers.descheduler.cluster_view import ANNOTATION_WORKLOAD
from controllers.migration.arbitration import arbitrate, in_order
from controllers.migration.settings import MigrationArgs
from tests.descheduling import NOW, a_cluster, a_node, a_pod, a_workload


def a_job(pod: str, age: float = 10.0, phase: str = "Pending", name: str = "") -> PodMigrationJob:
    document = {
        "metadata": {"name": name or f"j-{pod}", "uid": f"uid-{name or pod}", "creationTimestamp": rfc3339(NOW - age)},
        "spec": {"podRef": {"namespace": "shop", "name": pod, "uid": f"uid-{pod}"}},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PodMigrationJob)


def chosen(pods: Any, jobs: Any, **args: Any) -> dict[str, tuple[str, bool]]:
    workloads = [a_workload(replicas=len(pods))] if len(pods) > 3 else [a_workload(replicas=10)]
    cluster = a_cluster([a_node("a"), a_node("b")], pods, jobs=jobs, workloads=workloads)
    waiting = [job for job in jobs if job.status.phase == "Pending"]
    found = arbitrate(cluster, waiting, MigrationArgs(**args))
    return {each.job.metadata.name: (each.refusal, each.ended) for each in found}


def test_the_limits_count_those_that_start_before() -> None:
    pods = [a_pod(f"p{number}", priority=number) for number in range(10)]
    jobs = [a_job(f"p{number}") for number in range(4)]
    found = chosen(pods, jobs, max_migrating_per_node=None)
    assert [name for name, (refusal, _) in found.items() if not refusal] == ["j-p0", "j-p1"]
    assert "are moving already" in found["j-p2"][0]
    assert not found["j-p2"][1], "it waits"


def test_running_jobs_count() -> None:
    pods = [a_pod(f"p{number}") for number in range(10)]
    jobs = [a_job("p0", phase="Running"), a_job("p1", phase="Running"), a_job("p2")]
    assert chosen(pods, jobs, max_migrating_per_node=None)["j-p2"][0]


def test_a_pod_that_may_not_be_moved_ends_its_job() -> None:
    refusal, ended = chosen([a_pod("p", owner="")], [a_job("p")])["j-p"]
    assert (refusal, ended) == ("nothing would make it anew", True)


def test_a_second_job_for_a_pod_ends() -> None:
    pods = [a_pod(f"p{number}") for number in range(10)]
    found = chosen(pods, [a_job("p0", 20, "Running"), a_job("p0", name="second")])
    assert found["second"] == ("job j-p0 moves the pod already", True)


def test_without_arbitration_all_start() -> None:
    pods = [a_pod(f"p{number}") for number in range(10)]
    args = msgspec.convert({"arbitrationArgs": {"enabled": False}}, MigrationArgs)
    cluster = a_cluster([a_node("a")], pods, workloads=[a_workload()])
    jobs = [a_job(f"p{number}") for number in range(10)]
    assert not any(each.refusal for each in arbitrate(cluster, jobs, args))


def test_pods_of_jobs_stay_together_and_those_that_move_already_go_first() -> None:
    pods = [
        a_pod("x1", owner="x", kind="Job", priority=1),
        a_pod("y1", owner="y", kind="Job", priority=2),
        a_pod("x2", owner="x", kind="Job", priority=3),
        a_pod("y2", owner="y", kind="Job", priority=4),
    ]
    jobs = [a_job(name) for name in ("x1", "y1", "x2", "y2")]
    cluster = a_cluster([a_node("a")], pods, jobs=jobs)
    assert [job.spec.pod_ref.name for job in in_order(cluster, jobs)] == ["x1", "x2", "y1", "y2"]
    started = [a_job("y1", phase="Running"), *(a_job(name) for name in ("x1", "x2", "y2"))]
    cluster = a_cluster([a_node("a")], pods, jobs=started)
    assert [job.spec.pod_ref.name for job in in_order(cluster, started[1:])] == ["y2", "x1", "x2"]


def test_the_newest_of_equal_jobs_goes_first() -> None:
    pods = [a_pod("p"), a_pod("q")]
    jobs = [a_job("p", age=50), a_job("q", age=10)]
    cluster = a_cluster([a_node("a")], pods, jobs=jobs)
    assert [job.spec.pod_ref.name for job in in_order(cluster, jobs)] == ["q", "p"]


def test_of_equal_pods_that_of_the_workload_with_fewest_moves_goes_first() -> None:
    pods = [a_pod("p", owner="web"), a_pod("q", owner="db"), a_pod("gone", owner="db")]
    moved = msgspec.structs.replace(
        a_job("gone", phase="Succeeded"),
        metadata=ObjectMeta(name="before", annotations={ANNOTATION_WORKLOAD: "uid-db"}),
    )
    jobs = [a_job("p", age=20.0), a_job("q", age=10.0)]
    workloads = [a_workload("web"), a_workload("db")]
    cluster = a_cluster([a_node("a")], pods, jobs=[*jobs, moved], workloads=workloads)
    assert [job.spec.pod_ref.name for job in in_order(cluster, jobs)] == ["p", "q"]
    assert [pod.metadata.name for pod in order.in_order(pods[1::-1], moves_of=cluster.moves_of)] == ["p", "q"]
