"""Places of cgroups by cgroup root, driver, class and runtime."""

import pytest

from koordlet.kubelet.cgroup_paths import (
    container_path,
    expanded_slice,
    kubepods_path,
    path_of_spec,
    pod_path,
    qos_path,
)
from koordlet.kubelet.configuration import CgroupDriver, KubeletConfig

UID = "1858680e-b044-4fd5-9dd4-f137e30e2180"
ESCAPED = UID.replace("-", "_")
HASH = "029829d3053739b0e5857a527e4b1c97"
ID = "ab" * 32


def config(root: str = "/", driver: CgroupDriver = "cgroupfs") -> KubeletConfig:
    return KubeletConfig(cgroup_root=root, cgroup_driver=driver)


@pytest.mark.parametrize(
    ("root", "driver", "kube_qos", "uid", "expected"),
    [
        pytest.param("/", "cgroupfs", "Guaranteed", UID, f"/kubepods/pod{UID}", id="plain-guaranteed"),
        pytest.param("/", "cgroupfs", "Burstable", HASH, f"/kubepods/burstable/pod{HASH}", id="plain-static"),
        pytest.param("/kubelet", "cgroupfs", "BestEffort", UID, f"/kubelet/kubepods/besteffort/pod{UID}", id="nested"),
        pytest.param(
            "/", "systemd", "Guaranteed", UID, f"/kubepods.slice/kubepods-pod{ESCAPED}.slice", id="slice-guaranteed"
        ),
        pytest.param(
            "/",
            "systemd",
            "BestEffort",
            UID,
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{ESCAPED}.slice",
            id="slice-best-effort",
        ),
        pytest.param(
            "/kubelet",
            "systemd",
            "Burstable",
            UID,
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{ESCAPED}.slice",
            id="kind",
        ),
        pytest.param("/", "cgroupfs", "", UID, "", id="unknown-class"),
        pytest.param("/", "cgroupfs", "Burstable", "../../system.slice", "", id="hostile-uid"),
        pytest.param("/", "systemd", "Burstable", "a_b", "", id="uid-with-underscore"),
        pytest.param("/", "cgroupfs", "Burstable", "", "", id="no-uid"),
    ],
)
def test_the_place_of_a_pod(root: str, driver: CgroupDriver, kube_qos: str, uid: str, expected: str) -> None:
    assert pod_path(config(root, driver), kube_qos, uid) == expected


def test_a_kubelet_without_cgroups_of_pods_places_none() -> None:
    assert pod_path(KubeletConfig(cgroups_per_qos=False), "Burstable", UID) == ""


def test_the_parents_of_pods() -> None:
    kind = config("/kubelet", "systemd")
    assert kubepods_path(kind) == "/kubelet.slice/kubelet-kubepods.slice"
    assert qos_path(kind, "BestEffort").endswith("/kubelet-kubepods-besteffort.slice")
    assert qos_path(config(), "Guaranteed") == "/kubepods"
    assert qos_path(config(), "Excellent") == ""


@pytest.mark.parametrize(
    ("runtime", "driver", "expected"),
    [
        pytest.param("containerd", "cgroupfs", f"/p/{ID}", id="containerd"),
        pytest.param("containerd", "systemd", f"/p/cri-containerd-{ID}.scope", id="containerd-systemd"),
        pytest.param("cri-o", "cgroupfs", f"/p/crio-{ID}", id="cri-o"),
        pytest.param("cri-o", "systemd", f"/p/crio-{ID}.scope", id="cri-o-systemd"),
        pytest.param("docker", "systemd", f"/p/docker-{ID}.scope", id="cri-dockerd"),
        pytest.param("another", "cgroupfs", "", id="another-runtime"),
    ],
)
def test_the_place_of_a_container(runtime: str, driver: CgroupDriver, expected: str) -> None:
    assert container_path("/p", runtime, config(driver=driver), ID) == expected


def test_only_ids_become_paths() -> None:
    assert container_path("/p", "containerd", config(), "../../x") == ""
    assert container_path("", "containerd", config(), ID) == ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(f"/kubepods/burstable/pod{UID}/{ID}", f"/kubepods/burstable/pod{UID}/{ID}", id="plain"),
        pytest.param(
            f"kubepods-burstable-pod{ESCAPED}.slice:cri-containerd:{ID}",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{ESCAPED}.slice/cri-containerd-{ID}.scope",
            id="containerd-systemd",
        ),
        pytest.param(
            f"kubepods-pod{ESCAPED}.slice:crio:{ID}",
            f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/crio-{ID}.scope",
            id="cri-o-systemd",
        ),
        pytest.param(f":docker:{ID}", f"/system.slice/docker-{ID}.scope", id="no-slice"),
        pytest.param("-.slice:x:y", "/x-y.scope", id="root-slice"),
        pytest.param("a.slice:x:../../b", "", id="hostile-name"),
        pytest.param("a/../b.slice:x:y", "", id="hostile-slice"),
        pytest.param("/kubepods/../../etc", "", id="dots"),
        pytest.param("kubepods/x", "", id="relative"),
        pytest.param("", "", id="empty"),
    ],
)
def test_the_path_of_a_runtime_spec(spec: str, expected: str) -> None:
    assert path_of_spec(spec) == expected


@pytest.mark.parametrize("name", ["a", "a--b.slice", "-a.slice", "a/b.slice", ".slice"])
def test_what_is_no_slice_has_no_path(name: str) -> None:
    assert expanded_slice(name) == ""
