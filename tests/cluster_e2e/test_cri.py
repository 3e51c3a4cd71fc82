"""koord-runtime-proxy between a client or the kubelet and a real containerd: as if it were not there."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import msgspec
import pytest

from cluster import PODS, Key
from koordlet.runtime_proxy.hook_types import HookType
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.cri_calls import Cri, first_text
from tests.cluster_e2e.cri_calls import field as part
from tests.cluster_e2e.cri_script import RUNTIME, Life, play
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.test_node import SLEEP
from tests.cluster_e2e.wire import fields_of
from tests.fake_cri import BIG, FakeHookServer
from tests.waiting import alive, wait_for

pytestmark = pytest.mark.cluster

PROXY = [sys.executable, "-m", "koordlet.runtime_proxy"]
STOPPED, DELETED = 2, 3
WORKING = ("pod", "container", "start", "running", "command", "exec", "attach", "forward a port", "update", "stop")
"""Steps that a runtime carries out, so that the same refusal everywhere is no agreement."""


@dataclass
class Proxy:
    """A proxy as a process of its own, before the node's containerd."""

    node: Node
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "proxy.sock"

    @property
    def hooks(self) -> Path:
        """Directory of registration files."""
        return self.folder / "hooks.d"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.hooks.mkdir(exist_ok=True)
        flags = [
            f"--koord-runtimeproxy-endpoint={self.socket}",
            f"--remote-runtime-service-endpoint={self.node.runtime.socket}",
            f"--runtime-hook-server-dir={self.hooks}",
        ]
        log = self.folder / "proxy.log"
        with log.open("a") as stream:
            self.process = subprocess.Popen([*PROXY, *flags], stderr=stream)
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            wait_for(lambda: _answers(channel), check=alive(self.process, log), interval_seconds=0.1)

    def kill(self) -> None:
        """End it in the midst of whatever it does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it in order."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def _answers(channel: grpc.Channel) -> bool:
    try:
        channel.unary_unary(f"{RUNTIME}Version")(b"", timeout=5)
    except grpc.RpcError:
        return False
    return True


@pytest.fixture
def proxy(node: Node, tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(node, tmp_path)
    made.start()
    yield made
    made.end()


@pytest.fixture
def hook_server(tmp_path: Path) -> Iterator[FakeHookServer]:
    with FakeHookServer(tmp_path / "hooks.sock") as server:
        yield server


def a_life(name: str, folder: Path) -> Life:
    logs = folder / f"logs-{name}"
    logs.mkdir()
    host_file = folder / "host-file"
    host_file.write_text("of the host\n")
    return Life(name, f"/koord-cri/pod{name}", logs, host_file)


def channel_of(socket: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{socket}", options=BIG)


@pytest.fixture
def no_kubelet(node: Node) -> Iterator[None]:
    """The node without its kubelet, which ends pods that it does not know."""
    node.programs.stop("kubelet")
    yield
    node.programs.resume("kubelet")
    wait_for(node.kubelet.answers, 60, check=node.programs.check, interval_seconds=0.2)


@pytest.mark.usefixtures("no_kubelet")
def test_every_call_is_answered_as_by_the_runtime_itself(
    node: Node, proxy: Proxy, hook_server: FakeHookServer, tmp_path: Path
) -> None:
    found = {}
    for name, socket in (("direct", node.runtime.socket), ("through", proxy.socket), ("hooked", proxy.socket)):
        if name == "hooked":  # messages are now decoded, and encoded again
            hooks = [hook.value for hook in HookType]
            registration = {"remote-endpoint": str(hook_server.socket), "runtime-hooks": hooks}
            (proxy.hooks / "test.json").write_bytes(msgspec.json.encode(registration))
            change = hook_server.change_container
            change("PreCreateContainerHook", lambda answer: answer.container_envs.update({"ADDED": "by hook"}))
            wait_for(lambda: "test.json" in (proxy.folder / "proxy.log").read_text())
        with channel_of(socket) as channel:
            found[name] = play(channel, a_life(name, tmp_path))
    hooked = {call.name for call in hook_server.calls}
    codes = {each.step: each.code for each in found["direct"]}
    print(f"{len(codes)} calls; hooks {sorted(hooked)}; {codes}")
    assert [step for step in WORKING if codes[step] != "OK"] == []
    for name in ("through", "hooked"):
        differing = [
            (direct, other) for direct, other in zip(found["direct"], found[name], strict=True) if direct != other
        ]
        assert not differing, "\n\n".join(f"{direct}\n{other}" for direct, other in differing)
    assert hooked >= {"PreRunPodSandboxHook", "PreCreateContainerHook", "PreStartContainerHook"}


@pytest.mark.usefixtures("no_kubelet")
def test_the_urls_of_streams_are_those_of_the_runtime(node: Node, proxy: Proxy, tmp_path: Path) -> None:
    cri = Cri(node.runtime.socket, tmp_path)
    try:
        sandbox = cri.sandbox("streams", "/koord-cri/podstreams")
        container = cri.create(sandbox, "main", SLEEP)
        cri.start(container)
        with channel_of(node.runtime.socket) as direct, channel_of(proxy.socket) as through:
            for method, request in (
                ("Exec", part(1, container) + part(2, "true") + part(5, 1)),
                ("Attach", part(1, container) + part(4, 1)),
                ("PortForward", part(1, sandbox[0]) + part(2, 80)),
            ):
                ask = [urlsplit(first_text(each.unary_unary(RUNTIME + method)(request))) for each in (direct, through)]
                assert ask[0].netloc == ask[1].netloc
                # A token that is not the server's own is a path that is not found.
                assert [_status(each.netloc, each.path) for each in ask] == [400, 400]
                assert _status(ask[1].netloc, f"{ask[1].path}x") == 404
    finally:
        cri.close()


def _status(address: str, path: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


class Events:
    """A thread that follows the events of one socket."""

    def __init__(self, socket: Path) -> None:
        self.seen: list[tuple[int, str]] = []
        self._channel = channel_of(socket)
        self._call = self._channel.unary_stream(f"{RUNTIME}GetContainerEvents")(b"")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for event in self._call:
                values = dict(fields_of(event))
                identity, kind = values[1], values.get(2, 0)
                assert isinstance(identity, bytes)
                assert isinstance(kind, int)
                self.seen.append((kind, identity.decode()))
        except grpc.RpcError:
            return

    def close(self) -> None:
        """End the stream."""
        self._call.cancel()
        self._thread.join()
        self._channel.close()


@pytest.mark.usefixtures("no_kubelet")
def test_the_stream_of_events_is_the_runtimes(node: Node, proxy: Proxy, tmp_path: Path) -> None:
    followers = [Events(socket) for socket in (node.runtime.socket, proxy.socket)]
    cri = Cri(node.runtime.socket, tmp_path)
    try:
        time.sleep(1)  # until both are followed
        container = cri.create(cri.sandbox("told", "/koord-cri/podtold"), "main", ["true"])
        cri.start(container)
        for kind in (STOPPED, DELETED):
            wait_for(lambda kind=kind: all((kind, container) in each.seen for each in followers))
            if kind == STOPPED:
                cri.remove(container)
        direct, through = ([event for event in each.seen if event[1] == container] for each in followers)
        assert direct == through
    finally:
        cri.close()
        for each in followers:
            each.close()


@contextmanager
def kubelet_behind(proxy: Proxy) -> Iterator[None]:
    """The kubelet with the proxy as its runtime."""
    node = proxy.node
    settings = node.kubelet.settings
    before = settings.read_bytes()
    document = msgspec.json.decode(before)
    settings.write_bytes(msgspec.json.encode({**document, "containerRuntimeEndpoint": f"unix://{proxy.socket}"}))
    try:
        _restart(node)
        yield
    finally:
        settings.write_bytes(before)
        _restart(node)


def _restart(node: Node) -> None:
    node.programs.restart("kubelet")
    wait_for(lambda: node.kubelet.answers() and node.is_ready(), 60, check=node.programs.check, interval_seconds=0.2)


def test_a_kubelet_goes_on_when_the_proxy_was_killed_in_a_call(node: Node, proxy: Proxy, pods: Pods) -> None:
    with kubelet_behind(proxy):
        lasting = pods.run("lasting", SLEEP)["status"]["containerStatuses"][0]
        body = {"command": SLEEP, "image": lasting["image"], "imagePullPolicy": "Never", "name": "main"}
        metadata = {"name": "starting", "namespace": pods.namespace}
        spec = {"nodeName": node.name, "containers": [body], "terminationGracePeriodSeconds": 1}
        failed: list[str] = []

        def run_command() -> None:
            with channel_of(proxy.socket) as channel:
                identity = lasting["containerID"].partition("://")[2]
                try:
                    channel.unary_unary(f"{RUNTIME}ExecSync")(part(1, identity) + part(2, "sleep") + part(2, "30"))
                except grpc.RpcError as error:
                    failed.append(error.code().name)

        caller = threading.Thread(target=run_command)
        caller.start()
        node.client.create(PODS, {"metadata": metadata, "spec": spec})
        wait_for(lambda: _has_sandbox(node, "starting"), 60, interval_seconds=0.01)
        proxy.kill()
        caller.join()
        assert failed == ["UNAVAILABLE"]
        time.sleep(2)
        assert _running(node, lasting["containerID"])
        begun = time.monotonic()
        proxy.start()
        pods.await_phase("starting", "Running")
        print(f"the pod ran {time.monotonic() - begun:.1f} s after the start of the proxy")
        after = node.client.get(PODS, Key(pods.namespace, "lasting"))["status"]["containerStatuses"][0]
        assert (after["containerID"], after["restartCount"]) == (lasting["containerID"], 0)
        wait_for(node.is_ready, 60, interval_seconds=0.2)


def _has_sandbox(node: Node, pod: str) -> bool:
    """Whether the runtime has begun with the pod: the kubelet's call is under way."""
    listed = node.runtime.ctr("containers", "list", "-q").stdout.split()
    infos = (node.runtime.ctr("containers", "info", each).stdout for each in listed)
    return any(json.loads(info).get("Labels", {}).get("io.kubernetes.pod.name") == pod for info in infos if info)


def _running(node: Node, container: str) -> bool:
    lines = node.runtime.ctr("tasks", "list").stdout.splitlines()
    return any(container.partition("://")[2] in line and "RUNNING" in line for line in lines)


@pytest.mark.skipif("KOORD_BENCH_PROXY" not in os.environ, reason="KOORD_BENCH_PROXY is not set: times are measured")
def test_time_that_the_proxy_adds(node: Node, pods: Pods) -> None:
    container = pods.run("measured", SLEEP)["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    command = [sys.executable, "-m", "bench.runtime_proxy", "--backend", node.runtime.socket, "--container", container]
    subprocess.run([*command, "--rounds", "9", "--calls", "200"], check=True)
