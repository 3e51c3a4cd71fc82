"""A proxy between a fake runtime and a client, for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.settings import ProxySettings
from tests.fake_cri import FakeHookServer, FakeRuntime, Kubelet, ProxyThread, Register, kubelet_of

ALL_HOOKS = tuple(hook.value for hook in HookType)


@pytest.fixture
def settings(tmp_path: Path) -> ProxySettings:
    """Settings whose paths are the test's own."""
    (tmp_path / "hooks.d").mkdir()
    return ProxySettings(
        socket=str(tmp_path / "proxy.sock"),
        backend=str(tmp_path / "runtime.sock"),
        hook_directory=str(tmp_path / "hooks.d"),
        hook_timeout_seconds=1.0,
        drain_seconds=5.0,
    )


@pytest.fixture
def runtime(settings: ProxySettings) -> Iterator[FakeRuntime]:
    """The runtime behind the proxy."""
    with FakeRuntime(Path(settings.backend)) as server:
        yield server


@pytest.fixture
def proxy(settings: ProxySettings, runtime: FakeRuntime) -> Iterator[ProxyThread]:
    """The proxy."""
    thread = ProxyThread(settings)
    thread.start()
    yield thread
    thread.stop()


@pytest.fixture
def kubelet(proxy: ProxyThread, settings: ProxySettings) -> Iterator[Kubelet]:
    """A client of the proxy."""
    with kubelet_of(Path(settings.socket)) as client:
        yield client


@pytest.fixture
def register(settings: ProxySettings) -> Register:
    """Write a registration file."""

    def write(
        socket: Path, *, policy: str = "Ignore", hooks: tuple[str, ...] = ALL_HOOKS, name: str = "hooks.json"
    ) -> None:
        content = {"remote-endpoint": str(socket), "failure-policy": policy, "runtime-hooks": hooks}
        (Path(settings.hook_directory) / name).write_bytes(msgspec.json.encode(content))

    return write


@pytest.fixture
def hooks(tmp_path: Path, register: Register) -> Iterator[FakeHookServer]:
    """A hook server that is registered for every hook."""
    with FakeHookServer(tmp_path / "hooks.sock") as server:
        register(server.socket)
        yield server
