"""What the doctor says of runtime hooks: the rules, the NRI socket and the proxy, absent, mute and answering."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from koordlet.config import AgentSettings, EnforcerSettings
from koordlet.control.hook_findings import hook_findings
from koordlet.host.files import HostTree
from koordlet.kubelet.examination import Examined
from koordlet.nri.settings import NriSettings
from koordlet.runtime_proxy.settings import DEFAULT_SOCKET, HookServiceSettings
from tests.fake_cri import FakeRuntime
from tests.koordlet.nri.runtime import CallFailed, Runtime

ENFORCING = AgentSettings(
    enforcer=EnforcerSettings(enabled=True), nri=NriSettings(socket="/nri.sock", connect_timeout_seconds=2.0)
)
PROXIED = msgspec.structs.replace(ENFORCING, runtime_proxy=HookServiceSettings(enabled=True, directory="/hooks.d"))


@pytest.fixture
def root() -> Iterator[Path]:
    # Not the test's own folder: a socket's path has 108 bytes at most.
    with tempfile.TemporaryDirectory(prefix="koord-") as folder:
        (Path(folder) / DEFAULT_SOCKET.lstrip("/")).parent.mkdir(parents=True)
        (Path(folder) / "hooks.d").mkdir()
        yield Path(folder)


@pytest.fixture
def nri(root: Path) -> Iterator[Runtime]:
    made = Runtime(root / "nri.sock")
    yield made
    made.close()


def found(settings: AgentSettings, root: Path, *, in_cluster: bool = True) -> dict[str, Examined]:
    return {each.name: each for each in hook_findings(settings, HostTree(root), in_cluster=in_cluster)}


def test_nothing_is_there_and_every_no_has_its_remedy(root: Path) -> None:
    lines = found(AgentSettings(), root, in_cluster=False)
    assert {name: line.available for name, line in lines.items()} == {
        "hooks": False,
        "nri": False,
        "runtime-proxy": False,
    }
    assert all(line.remedy for line in lines.values())


def test_rules_are_kept_where_the_agent_enforces_in_a_cluster(root: Path) -> None:
    assert found(ENFORCING, root)["hooks"].available
    assert "batch" in found(ENFORCING, root)["hooks"].reason
    assert not found(ENFORCING, root, in_cluster=False)["hooks"].available


def test_nri_tells_the_runtimes_version_and_the_plugin_is_never_configured(root: Path, nri: Runtime) -> None:
    refused: list[str] = []

    def serve() -> None:
        plugin = nri.accept()
        try:
            plugin.begin()
        except CallFailed as error:
            refused.append(str(error))
        plugin.close()

    runtime = threading.Thread(target=serve)
    runtime.start()
    line = found(ENFORCING, root)["nri"]
    runtime.join()
    assert line.available
    assert "containerd v2.1" in line.reason
    assert len(refused) == 1


def test_a_runtime_that_says_nothing_is_given_up(root: Path, nri: Runtime) -> None:
    line = found(ENFORCING, root)["nri"]
    assert not line.available
    assert "nri.sock" in line.reason
    assert "NRI enabled" in line.remedy


def test_a_proxy_that_runs(root: Path) -> None:
    (root / "hooks.d" / "koordlet.json").write_text("{}")
    with FakeRuntime(root / DEFAULT_SOCKET.lstrip("/")):
        line = found(PROXIED, root)["runtime-proxy"]
    assert line.available
    assert "fake" in line.reason
    assert "koordlet.json" in line.reason


def test_a_proxy_that_is_wanted_and_absent_is_to_be_started(root: Path) -> None:
    line = found(PROXIED, root)["runtime-proxy"]
    assert not line.available
    assert "containerRuntimeEndpoint" in line.remedy


def test_a_proxy_that_ended_leaves_a_socket_that_refuses(root: Path) -> None:
    (root / DEFAULT_SOCKET.lstrip("/")).touch()
    line = found(PROXIED, root)["runtime-proxy"]
    assert not line.available
    assert line.remedy
