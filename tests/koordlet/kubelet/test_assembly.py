"""Documents, runtime and configuration joined: places, restarts, reused names, contradictions."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from koordlet.identity.pods import NO_PODS, Assigned, ContainerRole, PodFacts, PodTable
from koordlet.kubelet.assembly import Sources, assemble, departed
from koordlet.kubelet.configuration import KubeletConfig, of_configz
from koordlet.kubelet.pod_documents import NodePod, NodePodStatus, pods_of_list
from koordlet.kubelet.runtime_view import RuntimeView, cgroup_path_of_info
from tests.koordlet.kubelet.recordings import KIND, config, document, places, pods, recorded, uid_of, view

RECORDED = Sources(
    pods=pods(),
    view=view(),
    config=config(),
    places=places(),
    assigned={("default/pinned", "main"): Assigned(cpus=(1,))},
)


def pod(name: str, found: tuple[PodFacts, ...]) -> PodFacts:
    return next(each for each in found if each.name.split("/")[1].startswith(name))


def test_every_recorded_container_has_the_cgroup_that_the_kernel_has() -> None:
    assembly = assemble(RECORDED, NO_PODS)
    tree = set((Path(__file__).parent / "data/tree.txt").read_text().split())
    running = [each for facts in assembly.pods for each in facts.containers if each.running]
    assert {each.cgroup_path for each in running} == {path for path in tree if len(path.rpartition("/")[2]) == 64}
    finished = pod("finished", assembly.pods)
    assert {facts.cgroup_path for facts in assembly.pods} - {finished.cgroup_path} == {
        path for path in tree if path.rpartition("/")[2].startswith("pod")
    }
    assert (assembly.problems, assembly.unplaced, assembly.unknown) == ((), 0, 0)


def test_what_the_kubelets_managers_gave() -> None:
    (main, _sandbox) = pod("pinned", assemble(RECORDED, NO_PODS).pods).containers
    assert main.assigned.cpus == (1,)


def test_a_restarted_container_keeps_the_ids_of_its_instances() -> None:
    crashing = pod("crashing", assemble(RECORDED, NO_PODS).pods)
    loop, sandbox = crashing.containers
    assert sandbox.role is ContainerRole.SANDBOX
    assert loop.restarts >= 2
    assert loop.earlier_ids
    table = PodTable(assemble(RECORDED, NO_PODS).pods, generation=1)
    for earlier in loop.earlier_ids:
        assert table.of_container(earlier) == (crashing, loop)


def test_ids_that_the_runtime_removed_are_remembered() -> None:
    before = PodTable(assemble(RECORDED, NO_PODS).pods, generation=1)
    old = pod("web", before.pods).containers[0].id
    now = replace(
        RECORDED.view or RuntimeView(""),
        containers=tuple(
            replace(each, id="f" * 64, attempt=each.attempt + 1) if each.id == old else each
            for each in view().containers
        ),
    )
    server = pod("web", assemble(replace(RECORDED, view=now), before).pods).containers[0]
    assert (server.id, server.earlier_ids) == ("f" * 64, (old,))
    assert server.cgroup_path.endswith("f" * 64)


def test_a_name_used_again_is_another_pod() -> None:
    before = PodTable(assemble(RECORDED, NO_PODS).pods, generation=1)
    again = tuple(
        replace_uid(each, "11111111-2222-3333-4444-555555555555") if each.metadata.name == "web" else each
        for each in pods()
    )
    assembly = assemble(replace(RECORDED, pods=again), before)
    web = pod("web", assembly.pods)
    assert web.cgroup_path.endswith("pod11111111-2222-3333-4444-555555555555")
    assert not any(each.earlier_ids for each in web.containers)
    assert not any(each.running for each in web.containers)
    assert assembly.unknown == len([each for each in view().containers if each.name in names_of("web")])


def names_of(name: str) -> set[str]:
    return {each.name for each in pod(name, assemble(RECORDED, NO_PODS).pods).containers}


def replace_uid(document: NodePod, uid: str) -> NodePod:
    return msgspec.structs.replace(
        document,
        metadata=msgspec.structs.replace(document.metadata, uid=uid),
        status=NodePodStatus(qos_class="Burstable"),
    )


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("/user.slice/kubepods/burstable/pod{uid}/{id}", id="uid-elsewhere"),
        pytest.param("/kubepods/besteffort/pod{uid}/{id}", id="other-class"),
        pytest.param("/kubepods/burstable/pod{uid}/nested/{id}", id="deeper"),
        pytest.param("/kubepods/burstable/pod00000000-0000-0000-0000-000000000000/{id}", id="another-pod"),
    ],
)
def test_a_container_outside_its_pods_place_has_none(told: str) -> None:
    server = pod("web", assemble(RECORDED, NO_PODS).pods).containers[0]
    elsewhere = told.format(uid=uid_of("web"), id=server.id)
    assembly = assemble(replace(RECORDED, places={**places(), server.id: elsewhere}), NO_PODS)
    assert pod("web", assembly.pods).containers[0].cgroup_path == ""
    assert assembly.unplaced == 1
    (problem,) = assembly.problems
    assert elsewhere in problem
    assert PodTable(assembly.pods, generation=1).of_path(elsewhere) is None


def test_a_pod_that_claims_the_uid_of_another_has_neither_its_cgroup_nor_its_containers() -> None:
    static = next(each for each in pods_of_list(recorded("api_pods.json")).pods if each.metadata.name == "etcd-node-0")
    liar = msgspec.structs.replace(static, metadata=msgspec.structs.replace(static.metadata, name="liar", uid="u"))
    assembly = assemble(replace(RECORDED, pods=(liar, static), by_kubelet=False), NO_PODS)
    found = pod("liar", assembly.pods)
    assert (found.cgroup_path, [each.cgroup_path for each in found.containers]) == ("", [""])
    assert pod("etcd", assembly.pods).containers[0].cgroup_path
    assert any("claims the uid" in problem for problem in assembly.problems)


def test_a_pod_that_is_not_listed_any_more_stays_until_its_containers_ended() -> None:
    rest = tuple(each for each in pods() if each.metadata.name not in ("web", "finished"))
    left = departed(RECORDED, rest, by_kubelet=True)
    assert [each.metadata.name for each in left] == ["web"]
    now = replace(RECORDED, pods=rest, departed=left)
    web = pod("web", assemble(now, NO_PODS).pods)
    assert web.active
    assert web.containers[0].running
    vanished = frozenset(each.cgroup_path for each in web.containers)
    assert "default/web" not in {each.name for each in assemble(replace(now, vanished=vanished), NO_PODS).pods}
    assert departed(now, rest, by_kubelet=True) == left
    ended = replace(
        view(),
        sandboxes=tuple(replace(each, ready=False) for each in view().sandboxes),
        containers=tuple(replace(each, running=False) for each in view().containers),
    )
    later = replace(now, view=ended)
    assert "default/web" not in {each.name for each in assemble(later, NO_PODS).pods}
    assert departed(later, rest, by_kubelet=True) == ()


def test_a_kubelet_that_has_not_synced_takes_no_pod_from_the_table() -> None:
    """Started while the API server is away, it lists its static pods alone."""
    static = tuple(each for each in pods() if each.metadata.name.startswith("etcd"))
    assert len(static) == 1
    before = assemble(RECORDED, NO_PODS)
    running = {each.name for each in before.pods if any(container.running for container in each.containers)}
    unsynced = replace(RECORDED, pods=static, departed=departed(RECORDED, static, by_kubelet=True))
    after = assemble(unsynced, PodTable(before.pods, generation=1))
    assert {each.name: each for each in after.pods} == {each.name: each for each in before.pods if each.name in running}
    synced = replace(unsynced, pods=pods(), departed=departed(unsynced, pods(), by_kubelet=True))
    assert synced.departed == ()
    assert assemble(synced, NO_PODS).pods == before.pods


def test_without_a_runtime_a_pod_that_has_a_cgroup_runs() -> None:
    alone = replace(RECORDED, view=None)
    rest = tuple(each for each in pods() if each.metadata.name != "web")
    assert departed(alone, rest, by_kubelet=True) == ()
    (left,) = departed(alone, rest, {uid_of("web")}, by_kubelet=True)
    assert left.metadata.name == "web"
    assert "default/web" in {each.name for each in assemble(replace(alone, pods=rest, departed=(left,)), NO_PODS).pods}


def test_kind_with_containerd_and_systemd() -> None:
    assembly = assemble(replace(RECORDED, config=of_configz(KIND), places={}), NO_PODS)
    web = pod("web", assembly.pods)
    uid = uid_of("web").replace("-", "_")
    assert web.cgroup_path == (
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{uid}.slice"
    )
    server = web.containers[0]
    assert server.cgroup_path == f"{web.cgroup_path}/cri-containerd-{server.id}.scope"


def test_cri_o_with_systemd() -> None:
    cri = document("crio.json")
    found = {key: cgroup_path_of_info(each["info"]) for key, each in cri["ContainerStatus"].items()}
    systemd = KubeletConfig(cgroup_driver="systemd")
    assembly = assemble(replace(RECORDED, view=view(cri), config=systemd, places=found), NO_PODS)
    server = pod("web", assembly.pods).containers[0]
    assert server.cgroup_path.endswith(f"/crio-{server.id}.scope")
    assert assembly.problems == ()


def test_without_a_runtime_ids_come_from_the_status() -> None:
    assembly = assemble(replace(RECORDED, view=None, places={}), NO_PODS)
    web = pod("web", assembly.pods)
    assert {each.name: each.running for each in web.containers if each.role is ContainerRole.APP} == {"server": True}
    assert len(web.containers[0].id) == 64


def test_without_a_configuration_nothing_has_a_place() -> None:
    assembly = assemble(replace(RECORDED, config=None), NO_PODS)
    assert not any(facts.cgroup_path for facts in assembly.pods)
    assert PodTable(assembly.pods, generation=1).of_path("") is None


@pytest.mark.parametrize(
    "info",
    [
        pytest.param({}, id="none"),
        pytest.param({"info": "not json"}, id="torn"),
        pytest.param({"info": '{"runtimeSpec": null}'}, id="null"),
        pytest.param({"info": json.dumps({"runtimeSpec": {"linux": {"cgroupsPath": 7}}})}, id="type"),
        pytest.param({"info": json.dumps({"runtimeSpec": {"linux": {"cgroupsPath": "\ud800"}}})}, id="surrogate"),
    ],
)
def test_a_status_without_a_path_is_no_error(info: dict[str, str]) -> None:
    assert cgroup_path_of_info(info) == ""
