"""The link to a stand-in runtime over a real socket: registration, answers, loss and return."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.nri.nri_pb2 import CreateContainerRequest, CreateContainerResponse, Empty
from koordlet.nri.runtime_link import RuntimeLink, pause_seconds
from koordlet.nri.settings import NriSettings
from tests.koordlet.nri.runtime import CallFailed, Runtime, container, sandbox
from tests.koordlet.nri.test_plugin import BATCH, Host
from tests.waiting import wait_for

QUICK = NriSettings(backoff_seconds=0.1, connect_timeout_seconds=0.5)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    made = Runtime(tmp_path / "nri.sock")
    yield made
    made.close()


@pytest.fixture
def link(tmp_path: Path) -> Iterator[RuntimeLink]:
    made = RuntimeLink(Host().plugin, tmp_path / "nri.sock", QUICK)
    yield made
    made.close()


def test_a_container_is_adjusted_over_the_wire(runtime: Runtime, link: RuntimeLink) -> None:
    link.start()
    plugin = runtime.accept()
    registered = plugin.registration()
    assert (registered.plugin_name, registered.plugin_idx) == ("koordlet_nri", "00")
    asked = CreateContainerRequest(pod=sandbox(annotations=BATCH), container=container())
    assert plugin.ask("CreateContainer", asked, CreateContainerResponse).adjust.linux.resources.cpu.shares.value == 512
    wait_for(lambda: link.reason == "")
    plugin.close()


def test_a_large_synchronization_is_read(runtime: Runtime, link: RuntimeLink) -> None:
    link.start()
    plugin = runtime.accept()
    pods = [sandbox(f"u{number}", annotations={"text": "x" * 2000}) for number in range(500)]
    assert plugin.begin(*pods)
    plugin.close()


def test_it_comes_back_after_the_runtime_was_away(tmp_path: Path, link: RuntimeLink) -> None:
    link.start()
    wait_for(lambda: "No such file" in link.reason)
    runtime = Runtime(tmp_path / "nri.sock")
    first = runtime.accept()
    first.begin()
    wait_for(lambda: link.connections == 1)
    first.close()
    second = runtime.accept()
    second.begin()
    wait_for(lambda: link.connections == 2)
    second.close()
    runtime.close()


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another-protocol"),
        pytest.param(struct.pack(">II", 1, 10) + struct.pack(">IIBB", 1 << 31, 1, 1, 0), id="message-too-large"),
        pytest.param(struct.pack(">II", 1, 12) + struct.pack(">IIBB", 2, 1, 1, 0) + b"\xff\xff", id="no-request"),
    ],
)
def test_garbage_ends_a_connection_and_not_the_link(runtime: Runtime, link: RuntimeLink, garbage: bytes) -> None:
    link.start()
    broken = runtime.accept()
    broken.registration()
    broken.trunk.sendall(garbage)
    sound = runtime.accept()
    sound.begin()
    wait_for(lambda: link.reason == "")
    broken.close()
    sound.close()


def test_a_runtime_that_never_asks_is_tried_again(runtime: Runtime, link: RuntimeLink) -> None:
    link.start()
    silent = runtime.accept()
    silent.registration()
    again = runtime.accept()
    again.begin()
    wait_for(lambda: link.connections == 1)
    silent.close()
    again.close()


def test_another_service_is_refused(runtime: Runtime, link: RuntimeLink) -> None:
    link.start()
    plugin = runtime.accept()
    plugin.begin()
    with pytest.raises(CallFailed, match="HostFunctions/Log is not served here"):
        plugin.ask("Log", Empty(), Empty, service="HostFunctions")
    plugin.close()


def test_pauses_double_up_to_a_minute_with_jitter() -> None:
    assert [pause_seconds(1, attempt, lambda: 0.0) for attempt in (0, 1, 2, 10, 10_000)] == [1, 2, 4, 60, 60]
    assert pause_seconds(1, 0, lambda: 1.0) == pytest.approx(1.1)
