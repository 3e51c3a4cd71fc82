"""Traffic classes on a link of our own: sender - router with a token bucket - receiver, in three network namespaces."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from pyroute2 import netns

from api.intents import Intent, Knob, Setting
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent
from koordlet.enforcer.lifecycle import Enforcer, open_enforcer, restore
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree
from koordlet.host.traffic.classes import choose_minor
from koordlet.host.traffic.classifiers import CgroupMatch
from koordlet.host.traffic.qdisc import link_identity
from koordlet.host.traffic.veth_taps import has_tcx, taps_of
from tests.cgroups import CgroupTree, TestCgroup
from tests.noisy import noisy
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

HOST = HostTree()
LINK_BITS = 20_000_000
LINK_BYTES = LINK_BITS // 8
CROWDED = 0.6 * LINK_BYTES
"""What online traffic gets beside a flood that takes most of the link."""
BOTTLENECK_BITS = 24_000_000
BEST_EFFORT, ONLINE = 5001, 5002
FLOWS = 8
KILLS = 20
_SEND = """
import socket, sys
held = [socket.create_connection(("10.97.2.2", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for one in held:
    one.setblocking(False)
import select
while True:
    for ready in select.select([], held, [])[1]:
        ready.send(bytes(65536))
"""


class Wire:
    """The three namespaces; the test's thread is in that of the sender."""

    def __init__(self) -> None:
        self.sender, self.router, self.receiver = (f"koord-test-{os.getpid()}-{end}" for end in ("a", "r", "b"))
        self.bytes: Counter[int] = Counter()
        self._sockets: list[socket.socket] = []

    def open(self) -> None:
        for name in (self.sender, self.router, self.receiver):
            self._ip("netns", "add", name)
        self.veth(self.sender, "up0", "10.97.1.2/24", "down0", "10.97.1.1/24")
        self.veth(self.receiver, "up0", "10.97.2.2/24", "down1", "10.97.2.1/24")
        self._ip("-n", self.sender, "route", "add", "default", "via", "10.97.1.1")
        self._ip("-n", self.receiver, "route", "add", "default", "via", "10.97.2.1")
        bucket = f"tbf rate {BOTTLENECK_BITS} burst 20kb limit 90kb"
        self.tc(self.router, f"qdisc add dev down1 root {bucket}")
        netns.pushns(self.receiver)
        try:
            self._listen()
        finally:
            netns.popns()
        netns.pushns(self.router)
        try:
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        finally:
            netns.popns()
        netns.pushns(self.sender)

    def veth(self, end: str, device: str, address: str, at_router: str, router_address: str) -> None:
        self._ip("-n", end, "link", "add", device, "type", "veth", "peer", "name", at_router, "netns", self.router)
        for name, interface, its in ((end, device, address), (self.router, at_router, router_address)):
            self._ip("-n", name, "address", "add", its, "dev", interface)
            self._ip("-n", name, "link", "set", interface, "up")

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    @staticmethod
    def tc(name: str, command: str) -> str:
        return subprocess.run(["tc", "-n", name, *command.split()], check=True, capture_output=True, text=True).stdout

    def _listen(self) -> None:
        for port in (BEST_EFFORT, ONLINE):
            listener = socket.create_server(("0.0.0.0", port))
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threading.Thread(target=self._count, args=(accepted, port), daemon=True).start()

    def _count(self, accepted: socket.socket, port: int) -> None:
        with accepted, contextlib.suppress(OSError):
            while chunk := accepted.recv(1 << 16):
                self.bytes[port] += len(chunk)

    def queueing(self) -> str:
        """Root queueing and classes of the sender's link."""
        return self.tc(self.sender, "qdisc show dev up0") + self.tc(self.sender, "class show dev up0")

    def rates(self, *ports: int, seconds: float = 2.0) -> list[float]:
        """Bytes per second that arrived, once all of them have arrived at all and some more."""
        for port in ports:
            enough = self.bytes[port] + 50_000
            try:
                wait_for(lambda port=port, enough=enough: self.bytes[port] >= enough)
            except AssertionError as error:
                error.add_note(self.queueing())
                raise
        before, began = [self.bytes[port] for port in ports], time.monotonic()
        time.sleep(seconds)
        spent = time.monotonic() - began
        return [(self.bytes[port] - count) / spent for port, count in zip(ports, before, strict=True)]

    def close(self) -> None:
        netns.popns()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for name in (self.sender, self.router, self.receiver):
            subprocess.run(["ip", "netns", "delete", name], check=False)


@pytest.fixture
def wire() -> Iterator[Wire]:
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = Wire()
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture
def flood() -> Iterator[TestCgroup]:
    tree = CgroupTree.detect()
    if "unified" not in tree.mounts:
        pytest.skip("no unified hierarchy is mounted")
    with tree.make_cgroup("flood") as cgroup:
        yield cgroup


def settings(state: Path) -> EnforcerSettings:
    return EnforcerSettings(
        enabled=True,
        strategies=("*",),
        network_classes=True,
        network_bits_per_second=LINK_BITS,
        state_dir=str(state),
        audit_file=str(state / "audit.jsonl"),
    )


def intent(cgroup: TestCgroup, value: str = "rate=125000 prio=7") -> list[Intent]:
    return [Setting(strategy="response", target=cgroup.path, reason="test", knob=Knob.NET_CLASS, value=value)]


def said(events: Sequence[EnforcerEvent]) -> list[tuple[str, str, str]]:
    return [(event.outcome.value, event.before, event.after) for event in events]


def send(cgroup: TestCgroup, port: int, flows: int) -> subprocess.Popen[bytes]:
    return cgroup.spawn([sys.executable, "-c", _SEND, str(port), str(flows)])


@contextlib.contextmanager
def enforcing(state: Path) -> Iterator[Enforcer]:
    enforcer = open_enforcer(settings(state), HOST)
    try:
        yield enforcer
    finally:
        enforcer.close()


@noisy("rates of single seconds of TCP flows whose sender and receiver share two CPUs")
def test_online_traffic_keeps_its_promise_and_best_effort_work_borrows_what_is_idle(
    wire: Wire, flood: TestCgroup, tmp_path: Path
) -> None:
    idle = wire.queueing()
    with CgroupTree.detect().make_cgroup("online") as online, enforcing(tmp_path) as enforcer:
        below = flood.make_cgroup("container")
        send(below, BEST_EFFORT, FLOWS)
        send(online, ONLINE, 1)
        # Congestion control takes a while until many flows have more than one.
        unprotected = wait_for(lambda: crowded if (crowded := wire.rates(ONLINE, BEST_EFFORT)[0]) < CROWDED else None)
        assert said(enforcer.step(intent(flood))) == [("set", "none", f"rate=125000 ceil={LINK_BYTES} prio=7")]
        wire.rates(ONLINE, seconds=1.0)
        protected, squeezed = wire.rates(ONLINE, BEST_EFFORT, seconds=3.0)
        online.remove()
        (borrowed,) = wire.rates(BEST_EFFORT)
        print(f"bytes/s: online {unprotected:.0f} -> {protected:.0f}, flood {squeezed:.0f}, alone {borrowed:.0f}")
        assert protected > 0.75 * (LINK_BYTES - 125_000)
        assert squeezed > 0.5 * 125_000, "its own promise is kept, too"
        assert borrowed > 0.7 * LINK_BYTES
        assert "htb" in wire.queueing()
        assert said(enforcer.step([])) == [("restored", f"rate=125000 ceil={LINK_BYTES} prio=7", "none")]
        assert wire.queueing() == idle


def test_a_ceiling_holds_on_an_idle_link(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    with enforcing(tmp_path) as enforcer:
        send(flood, BEST_EFFORT, 2)
        enforcer.step(intent(flood, "rate=250000 ceil=500000 prio=3"))
        wire.rates(BEST_EFFORT, seconds=1.0)
        assert 250_000 < wire.rates(BEST_EFFORT)[0] < 600_000


def test_the_nearest_cgroup_that_has_a_class_counts(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    with enforcing(tmp_path) as enforcer:
        below = flood.make_cgroup("container")
        send(below, BEST_EFFORT, 2)
        enforcer.step(
            [*intent(flood, "rate=100000 ceil=200000 prio=3"), *intent(below, "rate=500000 ceil=1000000 prio=3")]
        )
        wire.rates(BEST_EFFORT, seconds=1.0)
        assert 400_000 < wire.rates(BEST_EFFORT)[0] < 1_200_000
        enforcer.step(intent(flood, "rate=100000 ceil=200000 prio=3"))
        wire.rates(BEST_EFFORT, seconds=1.0)
        assert wire.rates(BEST_EFFORT)[0] < 300_000


def test_a_cgroup_made_again_is_classified_again_and_one_that_is_gone_leaves_nothing(
    wire: Wire, flood: TestCgroup, tmp_path: Path
) -> None:
    idle = wire.queueing()
    with enforcing(tmp_path) as enforcer:
        pod = flood.make_cgroup("pod")
        enforcer.step(intent(pod, "rate=100000 ceil=200000 prio=3"))
        pod.remove()
        pod = flood.make_cgroup("pod")
        enforcer.step(intent(pod, "rate=100000 ceil=200000 prio=3"))
        send(pod, BEST_EFFORT, 1)
        wire.rates(BEST_EFFORT, seconds=1.0)
        assert wire.rates(BEST_EFFORT)[0] < 300_000
        pod.remove()
        assert [event.outcome for event in enforcer.step([])] == [Outcome.RESTORED]
        assert wire.queueing() == idle


def test_a_foreign_qdisc_stays(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    wire.tc(wire.sender, "qdisc add dev up0 root handle 9: pfifo limit 77")
    set_by_hand = wire.queueing()
    with enforcing(tmp_path) as enforcer:
        (event,) = enforcer.step(intent(flood))
        assert event.outcome == Outcome.UNSUPPORTED
        assert "another program set pfifo 9: on up0" in event.reason
        assert wire.queueing() == set_by_hand
        wire.tc(wire.sender, "qdisc del dev up0 root")
        assert [one.outcome for one in enforcer.step(intent(flood))] == [Outcome.SET]
        wire.tc(wire.sender, "qdisc replace dev up0 root handle 9: pfifo limit 77")
        assert Outcome.FOREIGN_WRITE in [one.outcome for one in enforcer.step(intent(flood))]
    assert wire.queueing() == set_by_hand


def test_classes_that_another_program_removed_are_not_set_again(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    idle = wire.queueing()
    with enforcing(tmp_path) as enforcer:
        enforcer.step(intent(flood))
        wire.tc(wire.sender, "qdisc del dev up0 root")
        assert Outcome.FOREIGN_WRITE in [event.outcome for event in enforcer.step(intent(flood))]
        assert wire.queueing() == idle


def test_a_dry_run_says_the_same_and_changes_nothing(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    idle = wire.queueing()
    enforcer = open_enforcer(msgspec.structs.replace(settings(tmp_path), dry_run=True), HOST)
    assert said(enforcer.step(intent(flood))) == [("set", "none", f"rate=125000 ceil={LINK_BYTES} prio=7")]
    assert said(enforcer.step([])) == [("restored", f"rate=125000 ceil={LINK_BYTES} prio=7", "none")]
    assert wire.queueing() == idle


def test_a_link_that_does_not_say_its_rate_needs_a_setting(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    silent = msgspec.structs.replace(settings(tmp_path), network_bits_per_second=0)
    with contextlib.closing(open_enforcer(silent, HOST)) as enforcer:
        (event,) = enforcer.step(intent(flood))
    assert event.outcome == Outcome.UNSUPPORTED
    assert "up0 does not report its speed; set [enforcer] network_bits_per_second" in event.reason


@pytest.fixture
def at_router(wire: Wire, flood: TestCgroup, tmp_path: Path) -> Iterator[EnforcerSettings]:
    """The flood runs in the sender's namespace, the enforcer in the router's, whose link to the receiver is free."""
    send(flood, BEST_EFFORT, 1)
    wire.rates(BEST_EFFORT, seconds=0.1)
    wire.tc(wire.router, "qdisc del dev down1 root")
    netns.pushns(wire.router)
    yield msgspec.structs.replace(settings(tmp_path), network_interface="down1")
    netns.popns()


def test_a_cgroup_in_another_network_namespace_is_known_where_it_comes_in(
    wire: Wire, flood: TestCgroup, at_router: EnforcerSettings
) -> None:
    idle = wire.tc(wire.router, "qdisc show")
    with contextlib.closing(open_enforcer(at_router, HOST)) as enforcer:
        (event,) = enforcer.step(intent(flood, "rate=100000 ceil=200000 prio=3"))
        if not has_tcx():
            assert event.outcome == Outcome.UNSUPPORTED
            assert "network namespace of its own" in event.reason
            return
        assert event.outcome == Outcome.SET
        wire.rates(BEST_EFFORT, seconds=1.0)
        limited = wire.rates(BEST_EFFORT)[0]
        assert 50_000 < limited < 300_000
        assert [one.outcome for one in enforcer.step([])] == [Outcome.RESTORED]
        assert wire.tc(wire.router, "qdisc show") == idle
        wire.rates(BEST_EFFORT, seconds=0.5)
        assert wire.rates(BEST_EFFORT, seconds=1.0)[0] > 3 * limited


def test_a_namespace_that_comes_later_is_tapped_in_the_next_step(
    wire: Wire, flood: TestCgroup, at_router: EnforcerSettings
) -> None:
    if not has_tcx():
        pytest.skip("the kernel has no tcx (Linux 6.6)")
    assert flood.unified_dir is not None
    test = CgroupMatch(flood.unified_dir.stat().st_ino, 1)
    identity = link_identity("down1")
    assert identity is not None
    with contextlib.closing(open_enforcer(at_router, HOST)) as enforcer:
        enforcer.step(intent(flood))
        minor = choose_minor(flood.path, ())
        assert taps_of(identity).has(minor, test)
        wire.veth(wire.sender, "late0", "10.97.3.2/24", "down3", "10.97.3.1/24")
        assert not taps_of(identity).has(minor, test)
        enforcer.step(intent(flood))
        assert taps_of(identity).has(minor, test)


@pytest.fixture
def net_cls(flood: TestCgroup) -> Iterator[Path]:
    """The flood's directory in v1's net_cls hierarchy, mounted for the test where it is not."""
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    if release < (5, 15):
        pytest.skip("before 5.15 a mark ends the matching of sockets by v2 cgroup until the next boot")
    mount = find_mounts(HOST)[0].get("net_cls")
    made = None
    if mount is None:
        mount = made = Path(tempfile.mkdtemp(prefix="koord-net-cls-"))
        if subprocess.run(["mount", "-t", "cgroup", "-o", "net_cls", "none", str(mount)], check=False).returncode:
            mount.rmdir()
            pytest.skip("the kernel has no net_cls controller to mount")
    directory = mount / flood.path.strip("/")
    (directory / "container").mkdir(parents=True)
    try:
        yield directory
    finally:
        for folder in sorted(directory.rglob("*/"), reverse=True):
            _empty(folder)
        _empty(directory)
        if made is not None:
            subprocess.run(["umount", str(made)], check=True)
            made.rmdir()


def _empty(directory: Path) -> None:
    for pid in (directory / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while True:
        try:
            directory.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_marks_of_v1_classify_too(wire: Wire, flood: TestCgroup, net_cls: Path, tmp_path: Path) -> None:
    idle = wire.queueing()
    with enforcing(tmp_path) as enforcer:
        sender = send(flood, BEST_EFFORT, 2)
        wire.rates(BEST_EFFORT, seconds=0.5)
        (net_cls / "container/cgroup.procs").write_text(str(sender.pid))
        assert said(enforcer.step(intent(flood, "rate=100000 ceil=200000 prio=3")))[0][0] == "set"
        (net_cls / "late").mkdir()
        marks = {(net_cls / name / "net_cls.classid").read_text() for name in (".", "container", "late")}
        assert len(marks) == 1 and marks != {"0\n"}
        wire.rates(BEST_EFFORT, seconds=1.0)
        assert 50_000 < wire.rates(BEST_EFFORT)[0] < 300_000
        assert [event.outcome for event in enforcer.step([])] == [Outcome.RESTORED]
        marks = {(net_cls / name / "net_cls.classid").read_text() for name in (".", "container", "late")}
        assert marks == {"0\n"}
        assert wire.queueing() == idle
        (net_cls / "net_cls.classid").write_text("65537")
        (event,) = enforcer.step(intent(flood))
        assert event.outcome == Outcome.UNSUPPORTED
        assert "net_cls.classid 0x10001 of another program" in event.reason


def test_killed_at_any_moment_it_is_put_back(wire: Wire, flood: TestCgroup, tmp_path: Path) -> None:
    idle = wire.queueing()
    pods = [flood.make_cgroup(name) for name in ("a", "b", "c")]
    chance = random.Random(7)
    began = time.monotonic()
    with enforcing(tmp_path) as enforcer:
        enforcer.step([one for pod in pods for one in intent(pod)])
        step_seconds = time.monotonic() - began
    seen = Counter[bool]()
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            _churn(tmp_path, pods)
        time.sleep(chance.uniform(0.02, max(0.25, 2 * step_seconds)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen["htb" in wire.queueing()] += 1
        events = restore(settings(tmp_path), HOST)
        assert not [event for event in events if event.outcome == Outcome.FAILED], events
        assert wire.queueing() == idle
        assert restore(settings(tmp_path), HOST) == []
    assert seen[True], "no kill hit while classes stood"


def _churn(state: Path, pods: list[TestCgroup]) -> None:
    with contextlib.suppress(BaseException):
        enforcer = open_enforcer(settings(state), HOST)
        chance = random.Random()
        while True:
            enforcer.step(
                [
                    one
                    for pod in pods
                    if chance.random() < 0.4
                    for one in intent(pod, f"rate={chance.choice((2000, 90000))} prio=3")
                ]
            )
    os._exit(1)
