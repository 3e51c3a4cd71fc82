"""Cgroup layouts people meet, and what they are called."""

import pytest

from api.qos import QoSClass
from koordlet.identity.cgroup_names import QoSRule, name_cgroup, printable, qos_of

CONTAINER = "0123456789abcdef" * 4
UID = "8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff"


@pytest.mark.parametrize(
    ("path", "kind", "name", "qos"),
    [
        pytest.param("/", "root", "/", "", id="root"),
        pytest.param("/system.slice/nginx.service", "unit", "nginx.service", "", id="unit"),
        pytest.param("/system.slice/dev-disk\\x2dby.mount", "unit", "dev-disk-by.mount", "", id="escaped-unit"),
        pytest.param(f"/system.slice/docker-{CONTAINER}.scope", "container", CONTAINER[:12], "", id="docker-systemd"),
        pytest.param(f"/docker/{CONTAINER}", "container", CONTAINER[:12], "", id="docker-cgroupfs"),
        pytest.param(f"/machine.slice/libpod-{CONTAINER}.scope", "container", CONTAINER[:12], "", id="podman"),
        pytest.param(
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
            f"/cri-containerd-{CONTAINER}.scope",
            "container",
            f"8c1e5e0a/{CONTAINER[:12]}",
            "BE",
            id="kube-systemd-besteffort",
        ),
        pytest.param(
            f"/kubepods/burstable/pod{UID}/{CONTAINER}",
            "container",
            f"8c1e5e0a/{CONTAINER[:12]}",
            "LS",
            id="kube-cgroupfs-burstable",
        ),
        pytest.param(f"/kubepods/pod{UID}", "pod", "pod 8c1e5e0a", "LSR", id="kube-guaranteed-pod"),
        pytest.param(
            f"/kubelet/kubepods/besteffort/pod{UID}", "pod", "pod 8c1e5e0a", "BE", id="kubelet-cgroup-root-as-in-kind"
        ),
        pytest.param("/kubepods.slice", "kubepods", "kubepods", "", id="kubepods-root"),
        pytest.param("/kubepods/besteffort", "kubepods", "kubepods-besteffort", "", id="kubepods-cgroupfs-class"),
        pytest.param("/batch/job-7", "plain", "job-7", "", id="plain"),
    ],
)
def test_layout(path: str, kind: str, name: str, qos: str) -> None:
    named = name_cgroup(path)
    assert (named.kind, named.name) == (kind, name)
    if kind != "kubepods":
        assert qos_of(path, named, ()).value == qos


def test_the_first_rule_that_matches_wins() -> None:
    rules = (QoSRule("/batch/*", QoSClass.BE), QoSRule("nginx.service", QoSClass.LS), QoSRule("*", QoSClass.LSR))
    assert qos_of("/batch/job-7", name_cgroup("/batch/job-7"), rules) is QoSClass.BE
    assert qos_of("/system.slice/nginx.service", name_cgroup("/system.slice/nginx.service"), rules) is QoSClass.LS
    assert qos_of("/x", name_cgroup("/x"), rules) is QoSClass.LSR


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
