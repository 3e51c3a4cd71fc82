"""The kubelet's configuration from /configz, its file, and the tree."""

from dataclasses import replace

import pytest

from koordlet.kubelet.cgroup_paths import kubepods_path
from koordlet.kubelet.configuration import (
    ConfigurationError,
    KubeletConfig,
    fitted,
    of_configz,
    of_file,
    of_tree,
)
from tests.koordlet.kubelet.recordings import KIND, config

FILE = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
cpuManagerPolicy: static
memoryManagerPolicy: Static
reservedSystemCPUs: 0-1
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {cpu: a lot}
featureGates: {MemoryQoS: true}
staticPodPath: null
"""


def test_the_recorded_answer() -> None:
    read = config()
    assert (read.source, read.cgroup_root, read.cgroup_driver) == ("configz", "/", "cgroupfs")
    assert read.static_cpus
    assert not read.static_memory
    assert not read.memory_qos
    assert read.system_reserved == {"cpu": 100}
    assert read.container_runtime_endpoint == "unix:///run/containerd/containerd.sock"


def test_a_nested_root() -> None:
    assert kubepods_path(of_configz(KIND)) == "/kubelet.slice/kubelet-kubepods.slice"


def test_a_file_and_one_malformed_amount() -> None:
    read = of_file(FILE, "config.yaml")
    assert (read.source, read.cgroup_driver) == ("file", "systemd")
    assert read.static_cpus
    assert read.static_memory
    assert read.memory_qos
    assert read.reserved_system_cpus == "0-1"
    assert read.system_reserved == {"cpu": 500, "memory": 1 << 30}
    assert read.kube_reserved == {}
    assert read.cgroups_per_qos


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"<html>", "not JSON", id="html"),
        pytest.param(b"{}", "kubeletconfig", id="empty"),
        pytest.param(b'{"kubeletconfig": {"cgroupsPerQOS": "yes"}}', "cgroupsPerQOS", id="type"),
    ],
)
def test_an_answer_that_is_none_is_refused_by_name(body: bytes, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        of_configz(body)


@pytest.mark.parametrize("text", ["kind: Pod", "- a", "{"])
def test_a_file_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="config"):
        of_file(text, "config.yaml")


@pytest.mark.parametrize(
    ("path", "root", "driver"),
    [
        pytest.param("/kubepods", "/", "cgroupfs", id="plain"),
        pytest.param("/kubepods.slice", "/", "systemd", id="slice"),
        pytest.param("/kubelet/kubepods", "/kubelet", "cgroupfs", id="kind-plain"),
        pytest.param("/kubelet.slice/kubelet-kubepods.slice", "/kubelet", "systemd", id="kind"),
    ],
)
def test_the_tree_tells_root_and_driver(path: str, root: str, driver: str) -> None:
    found = of_tree(lambda each: kubepods_path(each) == path)
    assert found is not None
    assert (found.source, found.cgroup_root, found.cgroup_driver) == ("tree", root, driver)


def test_the_runtimes_driver_goes_before_the_tree() -> None:
    found = of_tree(lambda each: each.cgroup_root == "/", "cgroupfs")
    assert found == KubeletConfig(source="runtime", cgroup_driver="cgroupfs")
    assert of_tree(lambda _each: False) is None


def test_a_driver_without_its_tree_gives_way_to_one_that_has_it() -> None:
    written = of_file("cgroupRoot: /kubelet", "config.yaml")
    assert fitted(written, lambda each: each.cgroup_driver == "systemd") == replace(written, cgroup_driver="systemd")
    assert fitted(written, lambda _each: False) == written
