"""The twin as a program, and what it does beside the contract."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.crds import RESERVATION
from cluster import (
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ApiError,
    Binding,
    BindOutcome,
    Client,
    Expired,
    Forbidden,
    Key,
    NotFound,
    Query,
    bind,
    custom,
    plain_endpoint,
)
from cluster.transport import Request
from cluster.twin import UNLIMITED, Twin, TwinSettings
from tests.cluster.conftest import pod
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]


def test_it_serves_from_a_process_of_its_own_and_ends_with_its_parent() -> None:
    command = [sys.executable, "-m", "cluster.twin", "--termination-seconds", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with Client(plain_endpoint(url), UNLIMITED) as client:
        client.create(PODS, pod("a", "d"))
        assert bind(client, Binding(Key("d", "a"), "", "n")) is BindOutcome.BOUND
        client.delete(PODS, Key("d", "a"))
        wait_for(lambda: client.find(PODS, Key("d", "a")) is None)
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_waits_for_the_end_of_input(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "cluster.twin"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert not process.stderr.read()


def test_kubelets_end_pods_after_a_while_unless_finalizers_hold_them() -> None:
    with Twin(TwinSettings(termination_seconds=0.1)) as twin, twin.client() as client:
        held = pod("held", "d", nodeName="n")
        held["metadata"]["finalizers"] = ["koordinator.sh/wait"]
        keys = twin.load(PODS, [pod("free", "d", nodeName="n"), held])
        for key in keys:
            client.delete(PODS, key)
        assert set(twin.objects(PODS)) == set(keys)
        wait_for(lambda: set(twin.objects(PODS)) == {keys[1]})
        client.modify(PODS, keys[1], lambda found: {**found, "metadata": {**found["metadata"], "finalizers": []}})
        assert not twin.objects(PODS)


def test_loaded_objects_stay_the_callers(twin: Twin) -> None:
    mine = pod("a", "d")
    mine["status"] = {"phase": "Running"}
    before = repr(mine)
    twin.load(PODS, [mine])
    assert repr(mine) == before
    assert twin.objects(PODS)[Key("d", "a")]["status"] == {"phase": "Running"}
    versions = [event.record.document["metadata"]["resourceVersion"] for event in twin.history(PODS)]
    assert len(versions) == len(set(versions)) == 2


def test_a_kind_can_be_served_without_its_definition(twin: Twin) -> None:
    reservations = custom(RESERVATION)
    with twin.client() as client:
        with pytest.raises(NotFound):
            client.list(reservations)
        twin.serve(reservations)
        owner = {"labelSelector": {"matchLabels": {"a": "b"}}}
        document = {"metadata": {"name": "r"}, "spec": {"owners": [owner], "any": 1}}
        client.create(reservations.of(dict), document)
        assert client.get(reservations.of(dict), Key("", "r"))["spec"]["any"] == 1


@pytest.mark.parametrize(
    ("class_name", "priority", "expected"),
    [("", None, 7), ("high", None, 1000), ("high", 5, 5), ("system-node-critical", None, 2000001000)],
)
def test_priorities_come_from_their_classes(twin: Twin, class_name: str, priority: int | None, expected: int) -> None:
    metadata = {"name": "high"}
    twin.load(PRIORITY_CLASSES, [{"metadata": metadata, "value": 1000}])
    twin.load(PRIORITY_CLASSES, [{"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}])
    spec: dict[str, Any] = {"priorityClassName": class_name} | ({} if priority is None else {"priority": priority})
    (key,) = twin.load(PODS, [pod("a", "d", **spec)])
    assert twin.objects(PODS)[key]["spec"]["priority"] == expected


def test_an_unknown_priority_class_is_forbidden(twin: Twin) -> None:
    with twin.client() as client, pytest.raises(Forbidden, match="absent"):
        client.create(PODS, pod("a", "d", priorityClassName="absent"))


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param([{}], "BestEffort", id="nothing"),
        pytest.param([{"requests": {"cpu": "1"}}], "Burstable", id="requests-only"),
        pytest.param([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed", id="limits-only"),
        pytest.param(
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}],
            "Burstable",
            id="request-below-limit",
        ),
        pytest.param([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable", id="one-container-without"),
    ],
)
def test_qos_classes(twin: Twin, resources: list[dict[str, Any]], expected: str) -> None:
    containers = [{"name": f"c{n}", "resources": item} for n, item in enumerate(resources)]
    (key,) = twin.load(PODS, [pod("a", "d", containers=containers)])
    assert twin.objects(PODS)[key]["status"]["qosClass"] == expected


def test_compaction_ends_old_watches_and_lists(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": f"n{number}"}} for number in range(5)])
    with twin.client() as client:
        page = client.send(Request("GET", NODES.path(), {"limit": "2"}))
        token = page.split(b'"continue":"')[1].split(b'"')[0].decode()
        version = client.list(NODES).resource_version
        twin.load(NODES, [{"metadata": {"name": "late"}}])
        twin.compact()
        with pytest.raises(Expired):
            client.send(Request("GET", NODES.path(), {"limit": "2", "continue": token}))
        with client.watch(NODES, resource_version=version) as watch, pytest.raises(Expired):
            list(watch.batches())


def test_a_watch_ends_by_itself_and_its_connection_serves_on(twin: Twin) -> None:
    with twin.client() as client:
        parameters = {"watch": "true", "timeoutSeconds": "1", "allowWatchBookmarks": "true", "resourceVersion": "1"}
        started = time.monotonic()
        lines = client.send(Request("GET", NODES.path(), parameters)).splitlines()
        assert 0.9 < time.monotonic() - started < 20
        assert all(b"BOOKMARK" in line for line in lines)
        assert client.list(NODES).items == ()


def test_a_version_from_the_future_is_waited_for(twin: Twin) -> None:
    hasty = replace(UNLIMITED, attempts=2)
    with twin.client(hasty) as client:
        future = str(twin.revision + 1)
        twin.load(NODES, [{"metadata": {"name": "n"}}])
        assert len(client.list(NODES, Query(), not_older_than=future).items) == 1


def test_the_official_client_finds_its_way(twin: Twin, tmp_path: Path) -> None:
    from kubernetes import client as official
    from kubernetes.dynamic import DynamicClient

    twin.serve(custom(RESERVATION))
    configuration = official.Configuration(host=twin.url)
    with official.ApiClient(configuration) as api:
        core: Any = official.CoreV1Api(api)
        core.create_namespaced_pod("d", pod("a", "d"))
        assert [item.metadata.name for item in core.list_pod_for_all_namespaces().items] == ["a"]
        core.create_namespaced_pod_binding(
            "a",
            "d",
            official.V1Binding(
                metadata=official.V1ObjectMeta(name="a"), target=official.V1ObjectReference(kind="Node", name="n")
            ),
            _preload_content=False,
        )
        assert core.read_namespaced_pod("a", "d").spec.node_name == "n"
        kinds: Any = DynamicClient(api, cache_file=str(tmp_path / "kinds"))  # type: ignore[no-untyped-call]
        reservations = kinds.resources.get(kind="Reservation", api_version=RESERVATION.api_version)
        assert reservations.get().items == []


def test_a_malformed_object_is_an_error_for_its_writer_alone(twin: Twin) -> None:
    hasty = replace(UNLIMITED, attempts=1)
    with twin.client(hasty) as client:
        for body in (
            b"[]",
            b"{",
            b'{"metadata":[]}',
            b'{"metadata":{"name":7}}',
            b'{"metadata":{"labels":3,"name":"x"}}',
        ):
            with pytest.raises(ApiError):
                client.send(Request("POST", PODS.path("d"), body=body))
        assert client.list(PODS, Query(labels="a=b")).items == ()


def test_the_same_seed_gives_the_same_names() -> None:
    def uids() -> list[str]:
        with Twin(TwinSettings(seed=3)) as twin:
            twin.load(NODES, [{"metadata": {"generateName": "n-"}} for _ in range(3)])
            return [f"{key.name} {item['metadata']['uid']}" for key, item in twin.objects(NODES).items()]

    assert uids() == uids()
