"""Names of workloads, which stay the same when its pods, containers and processes are replaced."""

import re
import string
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.workload import Workload
from koordlet.identity.cgroup_names import name_cgroup
from koordlet.identity.workloads import ContainerFacts, generalise, owner_of, workload_of

CONTAINER = "0123456789abcdef" * 4
POD_PATH = f"/kubepods/burstable/pod8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff/{CONTAINER}"


def workload(path: str, facts: ContainerFacts | None = None) -> str:
    return workload_of(path, name_cgroup(path), facts)


@pytest.mark.parametrize(
    ("pod", "kind", "owner"),
    [
        ("web-65747dc769-pjztg", "Deployment", "web"),
        ("my-web-v2-7d9f8b6c5f-x2x4z", "Deployment", "my-web-v2"),
        ("backup-29921946-k7x2p", "CronJob", "backup"),
        ("backup-29921946-3-k7x2p", "CronJob", "backup"),
        ("train-17-k7x2p", "Job", "train"),
        ("node-exporter-k7x2p", "Generated", "node-exporter"),
        ("db-0", "StatefulSet", "db"),
        ("shard-a-12", "StatefulSet", "shard-a"),
        ("debug", "Pod", "debug"),
        ("kube-apiserver-master", "Pod", "kube-apiserver-master"),
        ("my-nginx", "Pod", "my-nginx"),
    ],
)
def test_a_pods_owner_is_told_from_the_pods_name(pod: str, kind: str, owner: str) -> None:
    assert owner_of(pod) == (kind, owner)


_NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[aeiou])?", fullmatch=True)
_RANDOM = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=5, max_size=5)
_HASH = st.text("456789bcdf", min_size=6, max_size=10)


@given(_NAME, _HASH, _HASH, _RANDOM, _RANDOM)
def test_rollouts_and_restarts_keep_a_deployments_workload(name: str, old: str, new: str, one: str, two: str) -> None:
    assert owner_of(f"{name}-{old}-{one}") == owner_of(f"{name}-{new}-{two}") == ("Deployment", name)


def test_containers_of_a_pod_share_the_workload() -> None:
    web = ContainerFacts(namespace="shop", pod="web-65747dc769-pjztg", container="nginx", image="nginx:1")
    assert workload(POD_PATH, web) == Workload("shop", "Deployment", "web").path


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(ContainerFacts(name="shop-web-1", image="nginx:1", service="shop/web"), "shop/web", id="service"),
        pytest.param(ContainerFacts(name="dreamy_bohr", image="nginx:1.27"), "nginx", id="image"),
        pytest.param(
            ContainerFacts(name="x", image="localhost:5000/team/nginx"),
            "localhost:5000/team/nginx",
            id="registry-with-port",
        ),
        pytest.param(
            ContainerFacts(name="x", image=f"quay.io/nginx:1@sha256:{CONTAINER}"), "quay.io/nginx", id="digest"
        ),
        pytest.param(
            ContainerFacts(name="web", image=f"sha256:{CONTAINER}"), "web", id="name-where-the-image-is-a-digest"
        ),
        pytest.param(ContainerFacts(name="web", image=CONTAINER), "web", id="name-where-the-image-is-an-id"),
        pytest.param(ContainerFacts(), "", id="nothing"),
    ],
)
def test_a_container_without_a_pod_is_known_by_service_image_or_name(facts: ContainerFacts, expected: str) -> None:
    assert workload(f"/docker/{CONTAINER}", facts) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/system.slice/nginx.service", "nginx.service", id="service"),
        pytest.param("/system.slice/system-worker.slice/worker@17.service", "worker@.service", id="template-service"),
        pytest.param(
            "/system.slice/postgresql@15-main.service", "postgresql@.service", id="template-service-with-dashes"
        ),
        pytest.param("/system.slice/php8.2-fpm.service", "php8.2-fpm.service", id="service-with-digits"),
        pytest.param("/user.slice/user-1000.slice/session-42.scope", "session-*.scope", id="session"),
        pytest.param("/system.slice/run-r4f9c1e0a77d84d2cbd8a6a1e6f1c9a11.scope", "run-r*.scope", id="transient-scope"),
        pytest.param("/batch/job-7", "/batch/job-*", id="numbered"),
        pytest.param("/batch/job-8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff/main", "/batch/job-*/main", id="uuid"),
        pytest.param(f"/actors/{CONTAINER}", "/actors/*", id="container-id"),
        pytest.param("/build/3f0c9a1b", "/build/*", id="hex-of-a-build"),
        pytest.param("/web/facade", "/web/facade", id="word-of-hex-letters"),
        pytest.param("/web/deadbeef", "/web/deadbeef", id="word-of-hex-letters-only"),
        pytest.param("/", "", id="root"),
        pytest.param("/kubepods/burstable", "", id="qos-class"),
        pytest.param("/kubepods/burstable/pod8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff", "", id="pod"),
        pytest.param(f"{POD_PATH}/init", "", id="init-of-a-pod"),
    ],
)
def test_other_cgroups(path: str, expected: str) -> None:
    assert workload(path) == expected


def test_a_container_nothing_is_told_of_has_no_workload() -> None:
    assert workload(POD_PATH, ContainerFacts()) == ""


@given(st.text(string.ascii_letters + string.digits + "/-._"))
def test_generalising_again_changes_nothing(text: str) -> None:
    once = generalise(text)
    assert generalise(once) == once
    assert not re.search(r"\d", once)


@given(st.uuids(), st.uuids())
def test_uuids_never_tell_apart(one: UUID, two: UUID) -> None:
    assert generalise(f"/jobs/{one}") == generalise(f"/jobs/{two}") == "/jobs/*"
