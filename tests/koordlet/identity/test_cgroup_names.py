"""Cgroup layouts: the names, and the places where they are believed."""

import pytest

from api.cgroup_names import printable
from api.frame import CgroupKind
from koordlet.identity.cgroup_names import kubepods_of, name_cgroup

CONTAINER = "0123456789abcdef" * 4
UID = "8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff"
UID_ = UID.replace("-", "_")
HASH = "0123456789abcdef" * 2
SYSTEMD = "/kubepods.slice/kubepods-besteffort.slice"
KIND = "/kubelet.slice/kubelet-kubepods.slice"


@pytest.mark.parametrize(
    ("path", "kind", "name", "kube_qos"),
    [
        pytest.param("/", "root", "/", "", id="root"),
        pytest.param("/system.slice/nginx.service", "unit", "nginx.service", "", id="unit"),
        pytest.param("/system.slice/dev-disk\\\\x2dby.mount", "unit", "dev-disk-by.mount", "", id="escaped-unit"),
        pytest.param(f"/system.slice/docker-{CONTAINER}.scope", "container", CONTAINER[:12], "", id="docker-systemd"),
        pytest.param(f"/docker/{CONTAINER}", "container", CONTAINER[:12], "", id="docker-cgroupfs"),
        pytest.param(f"/machine.slice/libpod-{CONTAINER}.scope", "container", CONTAINER[:12], "", id="podman"),
        pytest.param(f"/libpod_parent/libpod-{CONTAINER}", "container", CONTAINER[:12], "", id="podman-cgroupfs"),
        pytest.param(
            f"{SYSTEMD}/kubepods-besteffort-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope",
            "container",
            f"8c1e5e0a/{CONTAINER[:12]}",
            "BestEffort",
            id="kube-systemd-besteffort",
        ),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-{CONTAINER}.scope",
            "container",
            f"8c1e5e0a/{CONTAINER[:12]}",
            "Guaranteed",
            id="kube-systemd-guaranteed-crio",
        ),
        pytest.param(
            f"/kubepods/burstable/pod{UID}/{CONTAINER}",
            "container",
            f"8c1e5e0a/{CONTAINER[:12]}",
            "Burstable",
            id="kube-cgroupfs-burstable",
        ),
        pytest.param(f"/kubepods/pod{UID}", "pod", "pod 8c1e5e0a", "Guaranteed", id="kube-guaranteed-pod"),
        pytest.param(f"/kubepods/burstable/pod{HASH}", "pod", "pod 01234567", "Burstable", id="static-pod"),
        pytest.param("/kubepods.slice", "kubepods", "kubepods", "Guaranteed", id="kubepods-root"),
        pytest.param("/kubepods/besteffort", "kubepods", "kubepods-besteffort", "BestEffort", id="class"),
        pytest.param(SYSTEMD, "kubepods", "kubepods-besteffort", "BestEffort", id="class-systemd"),
        pytest.param(
            f"{KIND}/kubelet-kubepods-burstable.slice",
            "kubepods",
            "kubelet-kubepods-burstable",
            "Burstable",
            id="class-nested",
        ),
        pytest.param(
            f"{KIND}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice",
            "pod",
            "pod 8c1e5e0a",
            "Burstable",
            id="pod-nested",
        ),
        pytest.param("/batch/job-7", "plain", "job-7", "", id="plain"),
    ],
)
def test_layout(path: str, kind: str, name: str, kube_qos: str) -> None:
    named = name_cgroup(path, kubepods=("/kubepods", "/kubepods.slice", KIND))
    assert (named.kind, named.name) == (kind, name)
    assert named.kube_qos == ("" if name == "kubepods" else kube_qos)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/user.slice/user-1000.slice/user@1000.service/kubepods-pod{UID_}.slice", id="user-unit"),
        pytest.param(f"/user.slice/kubepods.slice/kubepods-pod{UID_}.slice", id="user-slice"),
        pytest.param(f"/kubelet/kubepods/besteffort/pod{UID}", id="nested-root-not-set"),
        pytest.param(f"/kubepods.slice/kubepods-burstable-pod{UID_}.slice", id="class-not-above"),
        pytest.param(f"/kubepods/besteffort/kubepods-besteffort-pod{UID_}.slice", id="systemd-name-in-cgroupfs"),
        pytest.param(f"/kubepods/besteffort/pod{UID}x", id="longer-uid"),
        pytest.param(f"/kubepods/besteffort/xpod{UID}", id="prefixed-uid"),
        pytest.param(f"/kubepodsx/pod{UID}", id="longer-root"),
        pytest.param(f"/kubepods/burstable/besteffort/pod{UID}", id="class-in-class"),
        pytest.param(f"/batch/{CONTAINER}", id="hex-anywhere"),
        pytest.param(f"/user.slice/docker/{CONTAINER}", id="docker-of-a-user"),
    ],
)
def test_a_layout_at_another_place_is_no_pod_and_no_container(path: str) -> None:
    named = name_cgroup(path)
    assert named.kind in (CgroupKind.PLAIN, CgroupKind.UNIT)
    assert (named.pod_uid, named.container_id, named.kube_qos) == ("", "", "")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/kubepods/pod{UID}", id="pod"),
        pytest.param(f"/kubepods/burstable/pod{UID}/{CONTAINER}", id="container"),
        pytest.param("/kubepods/besteffort", id="class"),
        pytest.param(f"/system.slice/docker-{CONTAINER}.scope", id="docker-systemd"),
        pytest.param(f"/docker/{CONTAINER}", id="docker-cgroupfs"),
    ],
)
def test_what_a_user_made_is_no_pod_and_no_container(path: str) -> None:
    named = name_cgroup(path, delegated=True)
    assert named.kind in (CgroupKind.PLAIN, CgroupKind.UNIT)
    assert (named.pod_uid, named.container_id, named.kube_qos) == ("", "", "")


def test_a_cgroup_inside_a_container_knows_the_container() -> None:
    named = name_cgroup(f"/kubepods/burstable/pod{UID}/{CONTAINER}/init.scope/x")
    assert (named.kind, named.pod_uid, named.container_id) == (CgroupKind.PLAIN, UID, CONTAINER)
    assert (named.name, named.inside) == ("x", "init.scope/x")


@pytest.mark.parametrize(
    ("pod", "kubepods"),
    [
        pytest.param(f"/kubepods/burstable/pod{UID}", "/kubepods", id="cgroupfs"),
        pytest.param(f"{SYSTEMD}/kubepods-besteffort-pod{UID_}.slice", "/kubepods.slice", id="systemd"),
        pytest.param(f"{KIND}/kubelet-kubepods-pod{UID_}.slice", KIND, id="nested"),
        pytest.param("/docker/node/kubelet/kubepods/pod1", "/docker/node/kubelet/kubepods", id="node-in-a-container"),
        pytest.param("/elsewhere/pod", "", id="elsewhere"),
    ],
)
def test_the_kubelets_directory_of_a_pod(pod: str, kubepods: str) -> None:
    assert kubepods_of(pod) == kubepods


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        pytest.param("a\x1b[31mb", "a\\x1b[31mb", id="escape"),
        pytest.param("a\nb", "a\\nb", id="newline"),
        pytest.param("caf\u00e9", "caf\u00e9", id="accent"),
        pytest.param("\udcff", "\\udcff", id="surrogate"),
    ],
)
def test_hostile_names_are_made_printable(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown
