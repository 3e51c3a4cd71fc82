"""The runtime's socket: what it says, what it lacks, where it is."""

import threading
from pathlib import Path

import pytest

from koordlet.host.files import HostTree
from koordlet.identity.pods import Assigned
from koordlet.kubelet.cri import USUAL_SOCKETS, EventFollower, RuntimeClient, RuntimeUnavailable, find_socket
from koordlet.kubelet.pod_resources import PodResourcesClient, PodResourcesUnavailable
from tests.koordlet.kubelet.recordings import document, places, view
from tests.koordlet.kubelet.servers import RuntimeServer
from tests.waiting import wait_for


@pytest.fixture
def socket(root: Path, runtime: RuntimeServer) -> Path:
    return root / "run/containerd/containerd.sock"


def test_the_recorded_runtime(socket: Path) -> None:
    client = RuntimeClient(socket, 5.0)
    assert client.version() == ("containerd", document("containerd.json")["Version"]["runtime_version"])
    assert client.cgroup_driver() == "cgroupfs"
    assert client.view() == view()
    running = next(each for each in view().containers if each.running)
    assert client.place_of(running.id) == places()[running.id]
    client.close()


def test_a_container_that_is_gone_is_an_error_with_its_code(socket: Path) -> None:
    client = RuntimeClient(socket, 5.0)
    with pytest.raises(RuntimeUnavailable, match="NOT_FOUND"):
        client.place_of("0" * 64)
    client.close()


def test_an_older_runtime_does_not_tell_its_driver(socket: Path, runtime: RuntimeServer) -> None:
    del runtime.cri["RuntimeConfig"]
    client = RuntimeClient(socket, 5.0)
    assert client.cgroup_driver() is None
    client.close()


def test_a_socket_without_a_server(tmp_path: Path) -> None:
    client = RuntimeClient(tmp_path / "none.sock", 1.0)
    with pytest.raises(RuntimeUnavailable, match=r"none\.sock.*UNAVAILABLE") as refused:
        client.view()
    assert "cri_socket" in refused.value.remedy
    client.close()


def test_sockets_are_found_below_the_root_and_named_ones_first(root: Path, runtime: RuntimeServer) -> None:
    tree = HostTree(root)
    assert find_socket(tree) == root / USUAL_SOCKETS[0].lstrip("/")
    assert find_socket(tree, "unix:///run/containerd/containerd.sock") == find_socket(tree)
    assert find_socket(tree, "/run/other.sock", usual=False) is None
    assert find_socket(tree, "", usual=False) is None


def test_events_are_followed_and_the_stream_is_opened_again(socket: Path, runtime: RuntimeServer) -> None:
    changed = threading.Semaphore(0)
    client = RuntimeClient(socket, 5.0)
    follower = EventFollower(client, lambda _event: changed.release(), lambda _silent: 0.05)
    follower.start()
    wait_for(lambda: runtime.streams == 1)
    runtime.announce()
    assert changed.acquire(timeout=20)
    for stream in runtime._streams:
        stream.put(None)  # the runtime restarts
    wait_for(lambda: runtime.streams == 2)
    runtime.announce()
    assert changed.acquire(timeout=20)
    follower.stop(5.0)
    client.close()


def test_a_runtime_without_events_is_no_fault(socket: Path, runtime: RuntimeServer) -> None:
    runtime.has_events = False
    client = RuntimeClient(socket, 5.0)
    follower = EventFollower(client, lambda _event: None, lambda _silent: 0.01)
    follower.start()
    wait_for(lambda: follower.streams >= 2)
    follower.stop(5.0)
    client.close()


def test_pod_resources(socket: Path, runtime: RuntimeServer) -> None:
    runtime.cri["PodResources"] = {
        "pod_resources": [
            {
                "name": "p",
                "namespace": "n",
                "containers": [
                    {"name": "idle"},
                    {
                        "name": "busy",
                        "cpu_ids": ["3", "1"],
                        "devices": [
                            {"resource_name": "nvidia.com/gpu", "device_ids": ["a"]},
                            {"resource_name": "nvidia.com/gpu", "device_ids": ["b"]},
                        ],
                        "memory": [{"memory_type": "memory", "size": "4096", "topology": {"nodes": [{"ID": 1}]}}],
                    },
                ],
            }
        ]
    }
    client = PodResourcesClient(socket, 5.0)
    assert client.assigned() == {
        ("n/p", "busy"): Assigned((1, 3), (("memory", 4096, (1,)),), {"nvidia.com/gpu": ("a", "b")})
    }
    del runtime.cri["PodResources"]
    with pytest.raises(PodResourcesUnavailable, match="UNIMPLEMENTED"):
        client.assigned()
    client.close()
