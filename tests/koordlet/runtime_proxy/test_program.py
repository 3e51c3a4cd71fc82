"""The program as a process: start, sockets, signals, and its death in mid-call."""

import configparser
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from koordlet.runtime_proxy.settings import ProxySettings
from tests.fake_cri import FakeRuntime, Kubelet, kubelet_of
from tests.waiting import alive, wait_for

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "koordlet.runtime_proxy"]


def arguments(settings: ProxySettings) -> list[str]:
    """Return the flags of the settings."""
    return [
        f"--koord-runtimeproxy-endpoint=unix://{settings.socket}",
        f"--remote-runtime-service-endpoint={settings.backend}",
        f"--runtime-hook-server-dir={settings.hook_directory}",
        f"--drain-timeout={settings.drain_seconds}",
    ]


@contextmanager
def running(settings: ProxySettings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program until the end of the block."""
    with log.open("ab") as output:
        process = subprocess.Popen([*COMMAND, *arguments(settings)], stderr=output)
    try:
        wait_for(lambda: "proxy on unix:" in log.read_text(), check=alive(process, log))
        yield process
    finally:
        process.kill()
        process.wait()


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=60, check=False)


def held_call(runtime: FakeRuntime, kubelet: Kubelet, released: threading.Event) -> grpc.Future:
    """Return a call that the runtime has received and does not answer until it is told to."""
    entered = threading.Event()

    def hold(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        entered.set()
        released.wait(20)
        return b"done"

    runtime.answers["ExecSync"] = hold
    call = kubelet.channel.unary_unary("/runtime.v1.RuntimeService/ExecSync").future(b"", timeout=30)
    assert entered.wait(20)
    return call


def test_a_call_in_flight_when_the_proxy_dies_is_unavailable_and_the_next_one_succeeds(
    settings: ProxySettings, runtime: FakeRuntime, tmp_path: Path
) -> None:
    released = threading.Event()
    with kubelet_of(Path(settings.socket)) as kubelet:
        with running(settings, tmp_path / "log") as process:
            call = held_call(runtime, kubelet, released)
            process.send_signal(signal.SIGKILL)
            error = call.exception(timeout=20)
            assert isinstance(error, grpc.Call)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            released.set()
            with pytest.raises(grpc.RpcError) as failure:
                kubelet.call("Version")
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        assert Path(settings.socket).exists()
        with running(settings, tmp_path / "second.log"):  # takes the place of the dead one's socket
            version = kubelet.channel.unary_unary("/runtime.v1.RuntimeService/Version")
            assert version(b"", timeout=30, wait_for_ready=True)


def test_a_stop_lets_calls_finish_and_ends_streams(
    settings: ProxySettings, runtime: FakeRuntime, tmp_path: Path
) -> None:
    released = threading.Event()
    with kubelet_of(Path(settings.socket)) as kubelet, running(settings, tmp_path / "log") as process:
        events = kubelet.channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"")
        runtime.events.put(b"first")
        assert next(events) == b"first"
        call = held_call(runtime, kubelet, released)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as failure:
            next(events)
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        assert process.poll() is None
        released.set()
        assert call.result(timeout=20) == b"done"
        assert process.wait(20) == 0
    assert not Path(settings.socket).exists()


def test_only_the_owner_may_connect(settings: ProxySettings, runtime: FakeRuntime, tmp_path: Path) -> None:
    with running(settings, tmp_path / "log"):
        assert stat.S_IMODE(Path(settings.socket).stat().st_mode) == 0o600


def test_a_second_proxy_is_refused(settings: ProxySettings, runtime: FakeRuntime, tmp_path: Path) -> None:
    with running(settings, tmp_path / "log"):
        done = run(*arguments(settings))
        assert done.returncode == 1
        assert f"another process serves on {settings.socket}" in done.stderr
        assert "hint: stop it, or set another --koord-runtimeproxy-endpoint" in done.stderr
        with kubelet_of(Path(settings.socket)) as kubelet:
            assert kubelet.call("Version")


def test_readiness_is_told_once_the_runtime_answers(
    settings: ProxySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running(settings, log) as process:
            wait_for(lambda: "runtime not reachable" in log.read_text())
            with pytest.raises(BlockingIOError):
                systemd.recv(100)
            systemd.settimeout(20)
            with FakeRuntime(Path(settings.backend)):
                assert systemd.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"
            assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        pytest.param(["--help"], 0, "--container-runtime-endpoint=unix://", id="help"),
        pytest.param(["--no-such-flag"], 2, "No such option", id="unknown-flag"),
        pytest.param(["--backend-runtime-mode=Podman"], 2, "Containerd", id="mode"),
        pytest.param(["--koord-runtimeproxy-endpoint=tcp://:1"], 2, "no absolute path", id="no-path"),
        pytest.param(["--hook-timeout=0"], 2, "hook_timeout_seconds", id="timeout"),
        pytest.param(["--koord-runtimeproxy-endpoint=/var/run/cri-dockerd.sock", "--backend-runtime-mode=Docker"], 2,
                     "its backend's", id="own-backend"),
        pytest.param(["--koord-runtimeproxy-endpoint=/" + "x" * 120], 1, "longer than 107", id="long-path"),
        pytest.param(["--koord-runtimeproxy-endpoint=/dev/null"], 1, "is no socket", id="no-socket"),
        pytest.param(["--koord-runtimeproxy-endpoint=/proc/nowhere/a.sock"], 1, "hint: ", id="no-directory"),
    ],
)  # fmt: skip
def test_exit_status_and_words(flags: list[str], code: int, words: str) -> None:
    done = run(*flags)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert os.path.exists("/dev/null")


def test_the_unit_fits_the_program() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy/systemd/koord-runtime-proxy.service")
    service, defaults = unit["Service"], ProxySettings()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert Path(service["ExecStart"].split()[0]).name in scripts
    assert Path(defaults.socket).parent == Path("/var/run") / service["RuntimeDirectory"]
    assert Path(defaults.hook_directory) == Path("/etc") / service["ConfigurationDirectory"]
    assert float(service["TimeoutStopSec"].removesuffix("s")) > defaults.drain_seconds
    assert unit["Unit"]["Before"] == "kubelet.service"
