"""The source against servers that answer from recordings, change, refuse and stay away."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.kube.numa import CpuDetail
from api.protocol import ANNOTATION_RESOURCE_STATUS, LABEL_QOS_CLASS
from cluster import PODS
from cluster.twin import Twin
from koordlet.host.files import HostTree
from koordlet.identity.kubelet_policy import NO_KUBELET_POLICY, UNKNOWN_KUBELET_POLICY
from koordlet.kubelet.configuration import KubeletConfig
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.source import PodSource
from koordlet.kubelet.watch import PACE, ApiServer
from koordlet.topology.share_pools import share_pools
from tests.koordlet.kubelet.recordings import document, recorded, uid_of
from tests.koordlet.kubelet.servers import KubeletServer, RuntimeServer
from tests.trees import make_tree
from tests.waiting import wait_for


@pytest.fixture
def source(settings: KubeletSettings, root: Path, runtime: RuntimeServer) -> Iterator[PodSource]:
    running = PodSource(settings, "node-0", HostTree(root))
    running.start()
    yield running
    running.close()


def names(source: PodSource) -> set[str]:
    return {pod.name for pod in source.table().pods}


def test_pods_containers_and_configuration_come_together(source: PodSource) -> None:
    wait_for(lambda: source.table().generation)
    table, config = source.table(), source.config()
    assert len(table) == 7
    assert config is not None
    assert config.static_cpus
    web = table.of_uid(uid_of("web"))
    assert web is not None
    assert table.of_path(web.cgroup_path) == (web, None)
    assert source.status().pods_from == "kubelet"
    assert source.status().unplaced == 0
    assert source.policy().cpu_manager_static
    pinned = table.of_uid(uid_of("pinned"))
    assert pinned is not None
    assert source.policy().exclusive_pods == {pinned.cgroup_uid}


def test_a_kubelet_that_has_not_told_may_manage_anything(runtime: RuntimeServer, tmp_path: Path) -> None:
    silent = PodSource(KubeletSettings(pods_from="apiserver", cri=False), "node-0", HostTree(tmp_path))
    assert silent.policy() == UNKNOWN_KUBELET_POLICY
    silent._sources = replace(silent._sources, config=KubeletConfig(source="tree"))
    assert silent.policy() == UNKNOWN_KUBELET_POLICY
    silent._sources = replace(silent._sources, config=KubeletConfig(source="file"))
    assert silent.policy() == NO_KUBELET_POLICY


def test_nothing_changed_is_no_new_generation(source: PodSource, runtime: RuntimeServer) -> None:
    wait_for(lambda: source.table().generation == 1)
    asked = runtime.calls.count("ListContainers")
    source.poke()
    wait_for(lambda: runtime.calls.count("ListContainers") > asked + 1 or source.poke())
    assert source.table().generation == 1


def test_an_event_shows_an_end_without_asking_the_kubelet(
    source: PodSource, runtime: RuntimeServer, kubelet: KubeletServer
) -> None:
    wait_for(lambda: source.table().generation and runtime.streams)
    asked = kubelet.seen.count("/pods")
    listed = json.loads(json.dumps(runtime.cri["ListContainers"]))
    ended = next(each for each in listed["containers"] if each["metadata"]["name"] == "server")
    ended["state"] = "CONTAINER_EXITED"
    runtime.cri["ListContainers"] = listed
    runtime.announce()

    def is_running() -> bool:
        found = source.table().of_container(ended["id"])
        return found is not None and found[1].running

    wait_for(lambda: not is_running())
    assert kubelet.seen.count("/pods") == asked


def test_a_container_that_lives_for_a_moment_is_told_while_the_runtime_does_not_answer(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    patient = msgspec.structs.replace(settings, timeout_seconds=60.0)
    source = PodSource(patient, "node-0", HostTree(root))
    source.start()
    wait_for(lambda: source.table().generation and runtime.streams and source.status().unplaced == 0)
    asked = runtime.calls.count("ListContainers")
    runtime.hanging = {"ListContainers"}
    source.poke()
    wait_for(lambda: runtime.calls.count("ListContainers") > asked or source.poke())
    sandbox = next(each for each in runtime.cri["ListPodSandbox"]["items"] if each["metadata"]["name"] == "web")
    again = {"id": "7" * 64, "metadata": {"name": "server", "attempt": 9}}
    first = next(each for each in runtime.cri["ListContainers"]["containers"] if each["metadata"]["name"] == "server")
    crashed = {"id": first["id"], "metadata": first["metadata"], "state": "CONTAINER_EXITED"}
    told = {"container_id": "7" * 64, "pod_sandbox_status": {each: sandbox[each] for each in ("id", "metadata")}}

    def state() -> tuple[bool, int] | None:
        found = source.table().of_container("7" * 64)
        return (found[1].running, found[1].restarts) if found else None

    for kind, status in (
        ("CONTAINER_STARTED_EVENT", "CONTAINER_RUNNING"),
        ("CONTAINER_STOPPED_EVENT", "CONTAINER_EXITED"),
    ):
        runtime.announce(
            {**told, "container_event_type": kind, "containers_statuses": [crashed, {**again, "state": status}]}
        )
        wait_for(lambda status=status: state() == (status == "CONTAINER_RUNNING", 9), check=lambda: str(state()))
    assert runtime.hanging
    runtime.wake()
    source.close()


def test_a_new_sandbox_asks_the_kubelet(source: PodSource, runtime: RuntimeServer, kubelet: KubeletServer) -> None:
    wait_for(lambda: source.table().generation and runtime.streams)
    pods = json.loads(recorded("pods.json"))
    new = json.loads(json.dumps(pods["items"][0]))
    new["metadata"] |= {"name": "late", "uid": "99999999-2222-3333-4444-555555555555", "annotations": {}}
    kubelet.answers["/pods"] = json.dumps({"items": [*pods["items"], new]}).encode()
    sandbox = {
        "id": "9" * 64,
        "metadata": {"name": "late", "uid": new["metadata"]["uid"], "namespace": new["metadata"]["namespace"]},
    }
    listed = runtime.cri["ListPodSandbox"]
    runtime.cri["ListPodSandbox"] = {"items": [*listed["items"], sandbox]}
    runtime.announce()
    wait_for(lambda: source.table().of_container("9" * 64))


def test_a_kubelet_that_goes_is_warned_about_once_and_forgets_nothing(
    settings: KubeletSettings,
    root: Path,
    runtime: RuntimeServer,
    kubelet: KubeletServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    before = source.table()
    kubelet.answers["/pods"] = 403
    for now_seconds in (100.0, 300.0, 500.0):
        source.refresh(now_seconds)
    assert source.table() is before
    warnings = [each.getMessage() for each in caplog.records if "403" in each.getMessage()]
    assert len(warnings) == 1
    assert "nodes/proxy" in warnings[0]
    kubelet.answers["/pods"] = recorded("pods.json")
    source.refresh(1000.0)
    assert "kubelet answers again" in caplog.text
    source.close()


def test_the_runtime_going_and_coming_keeps_containers(
    settings: KubeletSettings, root: Path, kubelet: KubeletServer
) -> None:
    socket = root / "run/containerd/containerd.sock"
    with RuntimeServer(socket, document("containerd.json")):
        source = PodSource(settings, "node-0", HostTree(root))
        source.refresh(0.0)
        before = source.table()
        assert before.pods
    source.refresh(100.0)
    assert source.table() is before
    with RuntimeServer(socket, document("containerd.json")) as again:
        times_seconds = iter(range(1000, 1_000_000, 100))
        wait_for(lambda: (source.refresh(next(times_seconds)), again.calls.count("ListContainers"))[1])
        assert source.table() is before
        source.close()


def test_without_a_kubelet_pods_are_watched_at_the_api_server(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    away = msgspec.structs.replace(settings, endpoint="https://127.0.0.1:1")
    with Twin() as twin:
        listed: list[dict[str, Any]] = document("api_pods.json")["items"]
        for each in listed:
            del each["metadata"]["resourceVersion"]
        twin.load(PODS, listed)
        twin.load(PODS, [{**listed[0], "metadata": {"name": "far", "namespace": "x"}, "spec": {"nodeName": "n2"}}])
        source = PodSource(away, "node-0", HostTree(root), ApiServer(twin.client(PACE), "node-0"))
        source.start()
        wait_for(lambda: source.table().generation)
        assert source.status().pods_from == "apiserver"
        assert len(source.table()) == 7
        assert source.status().counters["apiserver"] >= 1
        found = source.config()
        assert found is not None
        assert (found.source, found.cgroup_driver) == ("tree", "cgroupfs")
        source.close()


def test_the_configuration_file_and_the_tree_serve_where_configz_is_refused(
    settings: KubeletSettings, root: Path, kubelet: KubeletServer, runtime: RuntimeServer
) -> None:
    kubelet.answers["/configz"] = 403
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    assert source.config() is not None
    assert source.config().source == "tree"  # type: ignore[union-attr]
    make_tree(root, {"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\ncgroupDriver: systemd\n"})
    source.refresh(1000.0)
    config = source.config()
    assert config is not None
    assert (config.source, config.cgroup_driver) == ("file", "cgroupfs")  # the tree has no slices
    source.close()


def test_malformed_pods_are_problems_and_the_others_pods(
    settings: KubeletSettings, root: Path, kubelet: KubeletServer, runtime: RuntimeServer
) -> None:
    listed = json.loads(recorded("pods.json"))
    listed["items"][0]["spec"]["containers"] = "none"
    listed["items"][1]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "-$"}}
    kubelet.answers["/pods"] = json.dumps(listed).encode()
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    assert len(source.table()) == 6
    assert len(source.status().problems) == 2
    kubelet.answers["/pods"] = b"<html>"
    source.refresh(1000.0)
    assert len(source.table()) == 6
    source.close()


def test_neither_answers_and_there_is_no_table(settings: KubeletSettings, tmp_path: Path) -> None:
    away = msgspec.structs.replace(settings, endpoint="https://127.0.0.1:1")
    source = PodSource(away, "node-0", HostTree(tmp_path / "empty"))
    source.refresh(0.0)
    assert source.table().generation == 0
    assert source.config() is None
    source.close()


def test_a_cgroup_that_vanished_ends_its_container_before_the_runtime_says_so(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    web = source.table().of_uid(uid_of("web"))
    assert web is not None
    ended, lasting = (each for each in web.containers if each.running and each.name in ("server", "POD"))
    for each in (ended, lasting):
        (root / f"sys/fs/cgroup/cpu{each.cgroup_path}").mkdir(parents=True)

    def running() -> set[str]:
        source.refresh(1.0)
        found = (source.table().of_container(each.id) for each in (ended, lasting))
        return {each[1].name for each in found if each is not None and each[1].running}

    assert running() == {ended.name, lasting.name}
    for each in (ended, lasting):
        (root / f"sys/fs/cgroup/cpu{each.cgroup_path}").rmdir()
        if each is ended:
            assert running() == {lasting.name}
            assert running() == {lasting.name}
    assert running() == set()
    assert running() == set()
    # Containers whose cgroup was never seen run as the runtime says.
    assert any(each.running for pod in source.table().pods for each in pod.containers)
    source.close()


def test_a_deleted_pod_stays_gone_while_the_runtime_still_lists_its_sandbox(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer, kubelet: KubeletServer
) -> None:
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    web = source.table().of_uid(uid_of("web"))
    assert web is not None
    paths = [root / f"sys/fs/cgroup/cpu{each.cgroup_path}" for each in web.containers if each.running]
    for path in paths:
        path.mkdir(parents=True)
    listed = json.loads(recorded("pods.json"))
    left = [each for each in listed["items"] if each["metadata"]["name"] != "web"]
    kubelet.answers["/pods"] = json.dumps({"items": left}).encode()
    source.refresh(100.0)
    assert source.table().of_uid(web.uid) is not None
    for path in paths:
        path.rmdir()
    for moment in range(3):
        source.refresh(101.0 + moment)
        assert source.table().of_uid(web.uid) is None
    source.close()


def test_a_container_that_ended_unseen_is_known_by_its_sandbox(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    web = source.table().of_uid(uid_of("web"))
    assert web is not None
    unseen, sandbox = (each for each in web.containers if each.running and each.name in ("server", "POD"))

    def runs() -> bool:
        source.refresh(1.0)
        found = source.table().of_container(unseen.id)
        return found is not None and found[1].running

    assert runs()  # nothing of the pod was ever seen
    (root / f"sys/fs/cgroup/cpu{sandbox.cgroup_path}").mkdir(parents=True)
    assert not runs()
    assert not runs()
    source.close()


def test_what_ended_is_told_while_the_runtime_does_not_answer(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    patient = msgspec.structs.replace(settings, timeout_seconds=60.0)
    source = PodSource(patient, "node-0", HostTree(root))
    source.start()
    wait_for(lambda: source.table().generation and source.status().unplaced == 0)
    running = [each for pod in source.table().pods for each in pod.containers if each.running]
    for each in running:
        (root / f"sys/fs/cgroup/cpu{each.cgroup_path}").mkdir(parents=True, exist_ok=True)
    seen = runtime.calls.count("ListContainers")
    source.poke()
    wait_for(lambda: runtime.calls.count("ListContainers") > seen)
    runtime.hanging = {"ListContainers", "ContainerStatus"}
    asked = runtime.calls.count("ListContainers")
    wait_for(lambda: source.poke() or runtime.calls.count("ListContainers") > asked)
    for each in running:
        (root / f"sys/fs/cgroup/cpu{each.cgroup_path}").rmdir()
    source.poke()
    wait_for(lambda: not any(each.running for pod in source.table().pods for each in pod.containers))
    runtime.wake()
    source.close()


def test_a_pod_that_starts_is_read_before_the_runtime_lists_it(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer, kubelet: KubeletServer
) -> None:
    listed = json.loads(recorded("pods.json"))
    web = next(each for each in listed["items"] if each["metadata"]["name"] == "web")
    without = [each for each in listed["items"] if each is not web]
    kubelet.answers["/pods"] = json.dumps({"items": without}).encode()
    source = PodSource(settings, "node-0", HostTree(root))
    source.start()
    wait_for(lambda: source.table().generation)
    assert source.await_pod(web["metadata"]["uid"], 0.0).of_uid(web["metadata"]["uid"]) is None
    kubelet.answers["/pods"] = recorded("pods.json")
    assert source.await_pod(web["metadata"]["uid"], 10.0).of_uid(web["metadata"]["uid"]) is not None
    source.close()


def test_a_runtime_that_hangs_costs_one_wait_for_all_places(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    impatient = msgspec.structs.replace(settings, timeout_seconds=0.5)
    source = PodSource(impatient, "node-0", HostTree(root))
    runtime.hanging = {"ContainerStatus"}
    source.refresh(0.0)
    assert runtime.calls.count("ContainerStatus") == 1
    assert source.status().counters["places_failed"] >= 1
    assert source.status().unplaced == 0  # they are where containerd usually puts them
    runtime.wake()
    source.refresh(1.0)
    assert runtime.calls.count("ContainerStatus") > 5
    source.close()


def test_a_kubelet_that_lists_static_pods_alone_costs_nobody_his_cpus(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer, kubelet: KubeletServer
) -> None:
    listed = json.loads(recorded("pods.json"))
    pinned = next(each for each in listed["items"] if each["metadata"]["name"] == "pinned")
    pinned["metadata"]["annotations"] = {ANNOTATION_RESOURCE_STATUS: '{"cpuset":"1"}'}
    pinned["metadata"]["labels"] = {LABEL_QOS_CLASS: "LSE"}
    kubelet.answers["/pods"] = json.dumps(listed).encode()
    source = PodSource(settings, "node-0", HostTree(root))
    source.refresh(0.0)
    machine = [CpuDetail(id=number) for number in range(4)]

    def lent() -> frozenset[int]:
        return share_pools(machine, pods=source.table().pods).be_cpus

    assert lent() == {0, 2, 3}
    static = [each for each in listed["items"] if each["metadata"]["name"].startswith("etcd")]
    kubelet.answers["/pods"] = json.dumps({"items": static}).encode()
    source.refresh(1000.0)
    assert lent() == {0, 2, 3}
    runtime.cri["ListContainers"] = {"containers": []}
    runtime.cri["ListPodSandbox"] = {"items": []}
    source.refresh(2000.0)
    assert {each.name for each in source.table().pods} == {"kube-system/etcd-node-0"}
    assert lent() == {0, 1, 2, 3}
    source.close()


def test_a_static_pod_and_its_mirror_are_one_when_the_api_server_takes_over(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer, kubelet: KubeletServer
) -> None:
    with Twin() as twin:
        listed: list[dict[str, Any]] = document("api_pods.json")["items"]
        for each in listed:
            del each["metadata"]["resourceVersion"]
        twin.load(PODS, listed)
        source = PodSource(settings, "node-0", HostTree(root), ApiServer(twin.client(PACE), "node-0"))
        source.refresh(0.0)
        kubelet.answers["/pods"] = 401
        times_seconds = iter(range(1000, 1_000_000, 100))

        def is_taken_over() -> bool:
            source.refresh(next(times_seconds))
            return source.status().pods_from == "apiserver"

        wait_for(is_taken_over)
        assert sorted(pod.name for pod in source.table().pods).count("kube-system/etcd-node-0") == 1
        etcd = source.table().of_uid("029829d3053739b0e5857a527e4b1c97")
        assert etcd is not None
        assert etcd.active
        assert etcd.static
        asked = source.status().counters["apiserver"]
        kubelet.answers["/pods"] = recorded("pods.json")
        source.refresh(next(times_seconds))
        assert source.status().pods_from == "kubelet"
        assert source.status().counters["apiserver"] >= asked > 0
        source.close()
