"""Time that koord-runtime-proxy adds to a CRI call: `python -m bench.runtime_proxy [--backend SOCKET --container ID]`.

The same call goes to the runtime directly and through the proxy, in turns, from one client that waits for each answer.
Printed are medians over rounds of each round's p50 and p99, and what the proxy adds. Without a backend a runtime in
Python answers, with hooks a hook server in Python. With a container's id, updates of it without a change are hooked.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import click
import grpc
import msgspec

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy.hook_types import HookType
from tests.fake_cri import BIG, RUNTIME
from tests.waiting import wait_for

WARM_UP_CALLS = 200
_SERVE = """
import sys, threading
from pathlib import Path
from tests import fake_cri
fake_cri.{kind}(Path(sys.argv[1])).start()
threading.Event().wait()
"""
Unary: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"


@contextmanager
def process(*command: str, socket: Path) -> Iterator[None]:
    """Run a program until the end of the block, from the time when its socket answers."""
    child = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
    try:
        wait_for(socket.exists, 30)
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            grpc.channel_ready_future(channel).result(30)
        yield
    finally:
        child.terminate()
        child.wait()


def measure(calls: Mapping[str, tuple[Unary, bytes]], rounds: int, per_round: int) -> dict[str, tuple[float, float]]:
    """Return the medians over rounds of p50 and p99, in microseconds, by path."""
    found: dict[str, list[tuple[float, float]]] = {path: [] for path in calls}
    for call, request in calls.values():
        for _ in range(WARM_UP_CALLS):
            call(request, timeout=10)
    for _ in range(rounds):
        for path, (call, request) in calls.items():
            times = []
            for _ in range(per_round):
                start = time.perf_counter_ns()
                call(request, timeout=10)
                times.append((time.perf_counter_ns() - start) / 1e3)
            times.sort()
            found[path].append((times[per_round // 2], times[per_round * 99 // 100]))
    return {
        path: (statistics.median(p50 for p50, _ in pairs), statistics.median(p99 for _, p99 in pairs))
        for path, pairs in found.items()
    }


def show(name: str, found: Mapping[str, tuple[float, float]]) -> None:
    """Print the times of each path, and what it adds to the direct one."""
    p50, p99 = found["direct"]
    for path, (median, high) in found.items():
        added = "" if path == "direct" else f"   adds {(median - p50) / 1e3:6.3f} {(high - p99) / 1e3:7.3f} ms"
        print(f"{name:26} {path:28} p50 {median / 1e3:6.3f}   p99 {high / 1e3:7.3f} ms{added}")


@click.command()
@click.option("--backend", help="Socket of a runtime; one in Python if unset.")
@click.option("--container", default="container0", help="Id of a container for hooked calls; none if empty.")
@click.option("--rounds", default=15)
@click.option("--calls", default=200, help="Calls of each path in a round.")
def main(backend: str | None, container: str, rounds: int, calls: int) -> None:
    """Measure, and print a line for each call and path."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = {name: Path(folder) / f"{name}.sock" for name in ("runtime", "hooks", "plain", "hooked")}
        runtime = Path(backend) if backend else paths["runtime"]
        if not backend:
            stack.enter_context(process("-c", _SERVE.format(kind="FakeRuntime"), str(runtime), socket=runtime))
        stack.enter_context(
            process("-c", _SERVE.format(kind="FakeHookServer"), str(paths["hooks"]), socket=paths["hooks"])
        )
        for name, hooks in (("plain", []), ("hooked", [hook.value for hook in HookType])):
            directory = Path(folder) / f"{name}.d"
            directory.mkdir()
            registration = {"remote-endpoint": str(paths["hooks"]), "runtime-hooks": hooks}
            (directory / "hooks.json").write_bytes(msgspec.json.encode(registration))
            flags = (f"--koord-runtimeproxy-endpoint={paths[name]}", f"--remote-runtime-service-endpoint={runtime}",
                     f"--runtime-hook-server-dir={directory}")  # fmt: skip
            stack.enter_context(process("-m", "koordlet.runtime_proxy", *flags, socket=paths[name]))
        channels = {
            path: stack.enter_context(grpc.insecure_channel(f"unix:{socket}", options=BIG))
            for path, socket in (
                ("direct", runtime),
                ("proxy", paths["plain"]),
                ("proxy, hook server", paths["hooked"]),
            )
        }
        print(f"rounds {rounds}, calls of each path in a round {calls}")
        for name in ("Version", "ListContainers"):
            callables = {path: channel.unary_unary(RUNTIME + name) for path, channel in channels.items()}
            show(name, measure({path: (callables[path], b"") for path in ("direct", "proxy")}, rounds, calls))
        if container:
            if not backend:
                create(channels["direct"], container)
            update = cri.UpdateContainerResourcesRequest(container_id=container, linux=cri.LinuxContainerResources())
            hooked = {
                path: (channel.unary_unary(f"{RUNTIME}UpdateContainerResources"), update.SerializeToString())
                for path, channel in channels.items()
            }
            show("UpdateContainerResources", measure(hooked, rounds, calls))


def create(channel: grpc.Channel, container: str) -> None:
    """Create a pod and the container of this id in the runtime of tests."""
    pod = cri.RunPodSandboxResponse.FromString(channel.unary_unary(f"{RUNTIME}RunPodSandbox")(b""))
    request = cri.CreateContainerRequest(pod_sandbox_id=pod.pod_sandbox_id)
    made = cri.ContainerId.FromString(channel.unary_unary(f"{RUNTIME}CreateContainer")(request.SerializeToString()))
    assert made.container_id == container


if __name__ == "__main__":
    main()
