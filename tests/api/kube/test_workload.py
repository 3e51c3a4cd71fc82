"""Workloads of pods, by what controls them."""

import pytest

from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Pod
from api.kube.workload import TEMPLATE_HASH_LABEL, workload_of


@pytest.mark.parametrize(
    ("kind", "name", "workload"),
    [
        pytest.param("ReplicaSet", "web-5f6d7b8c9", "Deployment/shop/web", id="deployment"),
        pytest.param("ReplicaSet", "other-1", "ReplicaSet/shop/other-1", id="replica-set"),
        pytest.param("StatefulSet", "db", "StatefulSet/shop/db", id="stateful-set"),
        pytest.param("DaemonSet", "proxy", "DaemonSet/shop/proxy", id="daemon-set"),
        pytest.param("Job", "import", "Job/shop/import", id="job"),
        pytest.param("Job", "backup-29384720", "CronJob/shop/backup", id="cron-job"),
        pytest.param("Job", "import-20260101", "Job/shop/import-20260101", id="job-with-a-date"),
    ],
)
def test_workload_of_a_pod(kind: str, name: str, workload: str) -> None:
    owner = OwnerReference(kind=kind, name=name, controller=True)
    meta = ObjectMeta(
        name="pod", namespace="shop", labels={TEMPLATE_HASH_LABEL: "5f6d7b8c9"}, owner_references=(owner,)
    )
    found = workload_of(Pod(metadata=meta))
    assert found is not None
    assert found.path == workload


def test_a_pod_alone_has_none() -> None:
    assert workload_of(Pod(metadata=ObjectMeta(name="pod", namespace="shop"))) is None
