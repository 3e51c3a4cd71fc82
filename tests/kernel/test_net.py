"""Known retransmits, drops and queued packets, counted exactly and keyed to the cgroup that uses the socket."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from api.frame import CGROUP, Reading
from probes.irq import Irq
from probes.net import Net
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup

pytestmark = pytest.mark.kernel

# A connection whose receiving end refuses everything for a while; prints the sender's own count of segments sent again.
LOSSY = """
import ctypes, json, socket, struct, time
SO_ATTACH_FILTER, SO_DETACH_FILTER, TOTAL_RETRANS_OFFSET = 26, 27, 100
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
refuse = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF_RET | BPF_K, 0 bytes
server.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(refuse)))
def retransmits():
    return struct.unpack_from("I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), TOTAL_RETRANS_OFFSET)[0]
client.send(b"x")
while retransmits() < 2:
    time.sleep(0.01)
server.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, struct.pack("i", 0))
assert server.recv(1) == b"x"
print(json.dumps({"retransmits": retransmits()}))
"""

# Datagrams through a slow, short queue in a network namespace of its own; prints tc's counts and all latency.
QUEUED = """
import json, socket, struct, subprocess, threading, time
def run(line):
    return subprocess.run(line.split(), check=True, capture_output=True, text=True).stdout
run("ip link set lo up")
run("tc qdisc add dev lo root tbf rate 1mbit burst 10kb limit 30kb")
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
receiver.settimeout(1)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
latencies = []
def receive():
    try:
        while True:
            sent = struct.unpack_from("d", receiver.recv(2048))[0]
            latencies.append(time.monotonic() - sent)
    except TimeoutError:
        pass
thread = threading.Thread(target=receive)
thread.start()
for _ in range(101):
    sender.send(struct.pack("d", time.monotonic()).ljust(1000))
thread.join()
queue = json.loads(run("tc -s -j qdisc show dev lo"))[0]
print(json.dumps({"packets": queue["packets"], "drops": queue["drops"], "latency": sum(latencies)}))
"""

# Takes a connection from the listener it is handed as standard input, greets, and reads to the end.
READER = """
import socket
listener = socket.socket(fileno=0)
connection, _ = listener.accept()
connection.send(b"!")
while connection.recv(65536):
    pass
"""

SILENT = """
import socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
print(receiver.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def probe(module_kernel: Kernel) -> Iterator[Net]:
    opened = Net.open(module_kernel, ProbeLimits())
    yield opened
    opened.close()


@pytest.fixture
def cgroup(tree: CgroupTree) -> Iterator[TestCgroup]:
    with tree.make_cgroup("net") as made:
        yield made


def printed_by(cgroup: TestCgroup, *command: str) -> Any:
    process = cgroup.spawn(command, stdout=subprocess.PIPE)
    printed, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(printed)


def of_cgroup(reading: Reading, cgroup: TestCgroup, column: str) -> int:
    table = reading.tables[CGROUP]
    return int(np.asarray(table.columns[f"net.{column}"])[table.ids == cgroup.cgroup_id].sum())


def drops_by_reason(reading: Reading, cgroup: TestCgroup) -> dict[str, int]:
    table = reading.tables["net.drop"]
    rows = table.ids == cgroup.cgroup_id
    counts = np.asarray(table.columns["net.drops"])[rows].tolist()
    return dict(zip(table.keys["reason"][rows].tolist(), counts, strict=True))


def test_segments_sent_again_are_counted_exactly(kernel: Kernel, probe: Net, cgroup: TestCgroup) -> None:
    printed = printed_by(cgroup, sys.executable, "-c", LOSSY)
    reading = probe.read()
    assert printed["retransmits"] >= 2
    assert of_cgroup(reading, cgroup, "tcp_retransmits") == printed["retransmits"]
    if len(kernel.btf.tracepoint_arguments("kfree_skb")) > 3:  # else the receiving socket is not known
        assert of_cgroup(reading, cgroup, "drops") == printed["retransmits"]  # all sent but the last
        assert drops_by_reason(reading, cgroup) == {"socket_filter": printed["retransmits"]}


def test_queued_and_dropped_sends_agree_with_the_queue(probe: Net, cgroup: TestCgroup) -> None:
    printed = printed_by(cgroup, "unshare", "-n", sys.executable, "-c", QUEUED)
    reading = probe.read()
    assert printed["drops"] > 10
    assert printed["packets"] + printed["drops"] == 101
    assert of_cgroup(reading, cgroup, "qdisc_packets") == printed["packets"]
    assert of_cgroup(reading, cgroup, "drops") == printed["drops"]
    reasons = drops_by_reason(reading, cgroup)
    assert sum(reasons.values()) == printed["drops"]
    assert reasons.get("qdisc_overlimit", 0) + reasons.get("qdisc_drop", 0) == printed["drops"]
    assert of_cgroup(reading, cgroup, "qdisc_hist") == printed["packets"]
    delay = of_cgroup(reading, cgroup, "qdisc_delay_ns") / 1e9
    assert 0.7 * printed["latency"] <= delay <= printed["latency"]


def test_a_listener_from_elsewhere_belongs_to_who_uses_it(probe: Net, cgroup: TestCgroup) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = cgroup.spawn([sys.executable, "-c", READER], stdin=listener.fileno())
        with socket.create_connection(listener.getsockname()) as client:
            assert client.recv(1) == b"!"
            for _ in range(500):
                client.sendall(b"x" * 1000)
        assert reader.wait() == 0
    assert of_cgroup(probe.read(), cgroup, "softirq_rx_ns") > 0


def test_a_socket_older_than_the_probe_has_an_owner(kernel: Kernel, cgroup: TestCgroup) -> None:
    if not kernel.btf.has_tracepoint("sk_data_ready"):
        pytest.xfail("this kernel does not report when a datagram reaches its socket")
    silent = cgroup.spawn([sys.executable, "-c", SILENT], stdout=subprocess.PIPE)
    assert silent.stdout
    port = int(silent.stdout.readline())
    probe = Net.open(kernel, ProbeLimits())
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(100):
                sender.sendto(b"x", ("127.0.0.1", port))
        assert of_cgroup(probe.read(), cgroup, "softirq_rx_ns") > 0
    finally:
        probe.close()


def test_receive_time_and_unkeyed_time_make_the_whole_interrupt(kernel: Kernel, probe: Net, cgroup: TestCgroup) -> None:
    interrupts = Irq.open(kernel, ProbeLimits())
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            reader = cgroup.spawn([sys.executable, "-c", READER], stdin=listener.fileno())
            with socket.create_connection(listener.getsockname()) as client:
                assert client.recv(1) == b"!"
                before, net_rx = probe.read(), net_rx_ns(interrupts)
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    client.sendall(b"x" * 1000)
                net_rx = net_rx_ns(interrupts) - net_rx
                after = probe.read()
            assert reader.wait() == 0
        parts = rx_parts(after) - rx_parts(before)
        assert net_rx > 10_000_000
        assert 0.7 * net_rx <= parts <= 1.3 * net_rx  # each probe's programs run inside the other's time
    finally:
        interrupts.close()


def rx_parts(reading: Reading) -> int:
    keyed = int(np.asarray(reading.tables[CGROUP].columns["net.softirq_rx_ns"]).sum())
    return keyed + reading.lost["net.unkeyed_rx_ns"]


def net_rx_ns(interrupts: Irq) -> int:
    table = interrupts.read().tables["irq.vector"]
    return int(np.asarray(table.columns["irq.vector_ns"])[table.keys["vector"] == "net_rx"].sum())
