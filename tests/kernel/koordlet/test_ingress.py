"""Policing of what arrives: a sender and a receiver in two network namespaces, the receiver in a cgroup of its own.

In the unified hierarchy a program on the cgroup polices; on cgroup v1 one on the veth does, in the namespace of the
sender, which is the host's there.
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import netns

from api.intents import Intent, Knob, Setting
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import open_enforcer, restore
from koordlet.host.files import HostTree
from koordlet.host.traffic import ingress, pod_links, veth_policer
from koordlet.host.traffic.ingress import MAX, missing_support
from koordlet.host.traffic.policers import policer_of
from koordlet.host.traffic.veth_taps import has_tcx
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]
HOST = HostTree()
ROOT = Path(__file__).parents[3]
UNIFIED, TCX, CLSACT = "unified", "v1-tcx", "v1-clsact"
LIMIT = 500_000
FAST = 8 * LIMIT
"""Bytes a second that only an unpoliced link reaches."""
_BUFFERED = 512 << 10
"""What may lie in the receiver's socket, or be one packet, when counting begins."""
_RECEIVE = """
import mmap, os, socket, struct, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
listener.bind(("10.98.1.2", 5001))
listener.listen()
counter = os.open(sys.argv[1], os.O_RDWR)
total = 0
accepted, _ = listener.accept()
while chunk := accepted.recv(65536):
    total += len(chunk)
    os.pwrite(counter, struct.pack("=Q", total), 0)
"""
_AGENT = """
import sys, time
from tests.kernel.koordlet.test_ingress import *
if sys.argv[3] == CLSACT:
    veth_policer.has_tcx = lambda: False
enforcer = open_enforcer(settings(Path(sys.argv[1])), HOST)
asked = {"strategy": "network_qos", "target": sys.argv[2], "reason": "test", "knob": Knob.NET_INGRESS}
print(*[one.outcome.value for one in enforcer.step([Setting(**asked, value="50000")])], flush=True)
time.sleep(600)
"""
_SEND = """
import socket, time
while True:
    try:
        held = socket.create_connection(("10.98.1.2", 5001))
        break
    except OSError:
        time.sleep(0.05)
while True:
    held.sendall(bytes(65536))
"""


class Flow:
    """A sender that sends all it can, and what arrives."""

    def __init__(self, sink: TestCgroup, state: Path, way: str) -> None:
        self.sink = sink
        self.way = way
        self._counter = state / "received"
        self._counter.write_bytes(bytes(8))
        self._names = [f"koord-in-{os.getpid()}-{end}" for end in ("a", "b")]
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_inside = False

    def open(self) -> None:
        near, far = self._names
        for name in self._names:
            _ip("netns", "add", name)
        _ip("-n", near, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", far)
        for name, address in ((near, "10.98.1.1/24"), (far, "10.98.1.2/24")):
            _ip("-n", name, "address", "add", address, "dev", "up0")
            _ip("-n", name, "link", "set", "up0", "up")
        if self.way != UNIFIED:
            netns.pushns(near)
            self._is_inside = True

    def start(self) -> None:
        near, far = self._names
        self.sink.spawn(["ip", "netns", "exec", far, sys.executable, "-P", "-c", _RECEIVE, str(self._counter)])
        self._start(["ip", "netns", "exec", near, sys.executable, "-P", "-c", _SEND])

    def enter(self) -> None:
        """Start a process in the receiver's namespace, but not in its cgroup."""
        self._start(["ip", "netns", "exec", self._names[1], "sleep", "600"])

    def _start(self, program: list[str]) -> None:
        self._started.append(subprocess.Popen(program))

    def received(self) -> int:
        return int(struct.unpack("=Q", self._counter.read_bytes())[0])

    def rate(self, seconds: float = 0.5) -> float:
        """Bytes per second of a while."""
        before, began = self.received(), time.monotonic()
        time.sleep(seconds)
        return (self.received() - before) / (time.monotonic() - began)

    def wait_until_fast(self) -> None:
        wait_for(lambda: self.rate() > FAST, timeout_seconds=60)

    def queueing(self) -> str:
        shown = [
            ["tc", "-n", name, *words] for name in self._names for words in (["qdisc", "show"], ["filter", "show"])
        ]
        return "".join(subprocess.run(one, check=False, capture_output=True, text=True).stdout for one in shown)

    def close(self) -> None:
        if self._is_inside:
            netns.popns()
        for one in self._started:
            one.kill()
            one.wait()
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(params=[UNIFIED, TCX, CLSACT])
def wires(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    """The two ends, and nothing that is sent yet."""
    tree, way = CgroupTree.detect(), request.param
    if way != UNIFIED:
        tree = CgroupTree(tree.version, {name: mount for name, mount in tree.mounts.items() if name != "unified"})
    if way == UNIFIED and "unified" not in tree.mounts:
        pytest.skip("no unified hierarchy is mounted")
    if way != UNIFIED and tree.version == "v2":
        pytest.skip("no hierarchy of cgroup v1 is mounted")
    if way == TCX and not has_tcx():
        pytest.skip("needs tcx (Linux 6.6)")
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed")
    if missing := missing_support():
        pytest.skip(missing.reason)
    if way == CLSACT:
        monkeypatch.setattr(veth_policer, "has_tcx", lambda: False)
    with tree.make_cgroup("sink") as sink:
        made = Flow(sink, tmp_path, way)
        try:
            made.open()
            yield made
        finally:
            made.close()


@pytest.fixture
def flow(wires: Flow) -> Flow:
    wires.start()
    wires.wait_until_fast()
    return wires


def settings(state: Path) -> EnforcerSettings:
    return EnforcerSettings(
        enabled=True, strategies=("*",), network_policing=True, state_dir=str(state / "state"), audit_file=""
    )


def intent(flow: Flow, value: int = LIMIT) -> list[Intent]:
    asked = {"strategy": "network_qos", "target": flow.sink.path, "reason": "test"}
    return [Setting(**asked, knob=Knob.NET_INGRESS, value=str(value))]


def arrives_within(flow: Flow, limit: int, seconds: float) -> None:
    """Count for a while what arrives: no more than the limit lets come."""
    before, began = flow.received(), time.monotonic()
    time.sleep(seconds)
    came = flow.received() - before
    assert came <= limit * (time.monotonic() - began + 0.05) + _BUFFERED


def test_what_arrives_is_limited_and_no_queue_is_touched(flow: Flow, tmp_path: Path) -> None:
    idle = flow.queueing()
    with contextlib.closing(open_enforcer(settings(tmp_path), HOST)) as enforcer:
        events = enforcer.step(intent(flow))
        assert [(one.outcome.value, one.before, one.after) for one in events] == [("set", MAX, str(LIMIT))]
        arrives_within(flow, LIMIT, 2.0)
        came = flow.received()
        wait_for(lambda: flow.received() > came + 50_000, timeout_seconds=60)
        assert flow.way == CLSACT or flow.queueing() == idle
        events = enforcer.step(intent(flow, 2 * LIMIT))
        assert [(one.outcome.value, one.before, one.after) for one in events] == [("set", str(LIMIT), str(2 * LIMIT))]
        arrives_within(flow, 2 * LIMIT, 1.0)
        assert [one.outcome for one in enforcer.step([])] == [Outcome.RESTORED]
        flow.wait_until_fast()
    assert flow.queueing() == idle


def test_it_ends_by_itself_where_nobody_looks_at_it(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    policer = policer_of(flow.sink.unified_dir or flow.sink.cpu_dir)
    policer.write(str(LIMIT))
    arrives_within(flow, LIMIT, 1.0)
    monkeypatch.setattr(ingress.LEASE, "seconds", 0.2)
    assert policer.read() == {str(LIMIT)}
    flow.wait_until_fast()
    policer.write(MAX)
    assert policer.read() == {MAX}


@pytest.mark.parametrize("wires", [UNIFIED, CLSACT], indirect=True)
def test_an_agent_that_is_killed_takes_it_along(flow: Flow, tmp_path: Path) -> None:
    idle = flow.queueing()
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(tmp_path), flow.sink.path, flow.way],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"set\n"
    arrives_within(flow, 50_000, 1.0)
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    if flow.way == UNIFIED:
        flow.wait_until_fast()
    assert not [event for event in restore(settings(tmp_path), HOST) if event.outcome is Outcome.FAILED]
    flow.wait_until_fast()
    assert flow.queueing() == idle


@pytest.mark.parametrize("wires", [TCX, CLSACT], indirect=True)
def test_a_pod_that_comes_later_is_covered(wires: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(veth_policer, "_FRESH_SECONDS", 0.0)
    policer = policer_of(wires.sink.cpu_dir)
    policer.write(str(LIMIT))
    wires.start()
    wires.wait_until_fast()
    policer.read()
    arrives_within(wires, LIMIT, 1.0)
    policer.write(MAX)
    wires.wait_until_fast()


@pytest.mark.parametrize("wires", [TCX], indirect=True)
def test_a_namespace_that_others_use_too_is_left(flow: Flow) -> None:
    flow.enter()
    policer = policer_of(flow.sink.cpu_dir)
    wait_for(lambda: len(pod_links.shared_namespaces(flow.sink.cpu_dir, pod_links.namespaces_below(flow.sink.cpu_dir))))
    policer.write(str(LIMIT))
    flow.wait_until_fast()
    policer.write(MAX)


@pytest.mark.parametrize("wires", [TCX], indirect=True)
def test_processes_in_the_hosts_network_are_refused(wires: Flow, tmp_path: Path) -> None:
    wires.sink.spawn(["sleep", "600"])
    wait_for(lambda: bool(wires.sink.pids()))
    with contextlib.closing(open_enforcer(settings(tmp_path), HOST)) as enforcer:
        (event,) = enforcer.step(intent(wires))
    assert event.outcome is Outcome.UNSUPPORTED
    assert "the host's own network" in event.reason
