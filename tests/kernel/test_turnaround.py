"""A known number of requests, counted exactly, on the server's side only."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from api.frame import CGROUP, Reading
from api.plugin import Unsupported
from probes.probe import Kernel, ProbeLimits
from probes.turnaround import Turnaround
from tests.cgroups import CgroupTree, TestCgroup

pytestmark = pytest.mark.kernel

# Answers each complete line after `delay` seconds, in two sends; prints its port.
SERVER = """
import socket, sys, threading, time
delay = float(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def serve(conn):
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in conn.makefile("rb"):
        if delay:
            time.sleep(delay)
        conn.send(b"half")
        conn.send(b"whole\\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def service(kernel: Kernel, tree: CgroupTree) -> Iterator[TestCgroup]:
    if not kernel.btf.has_tracepoint("sk_data_ready"):
        with pytest.raises(Unsupported, match="sk_data_ready"):
            Turnaround.open(kernel, ProbeLimits())
        pytest.xfail("this kernel has no tracepoint sk_data_ready, and the probe says so")
    with tree.make_cgroup("service") as cgroup:
        yield cgroup


def start(service: TestCgroup, delay: float = 0.0) -> int:
    server = service.spawn([sys.executable, "-c", SERVER, str(delay)], stdout=subprocess.PIPE)
    assert server.stdout
    return int(server.stdout.readline())


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def ask(client: socket.socket, times: int) -> None:
    answers = client.makefile("rb")
    for _ in range(times):
        client.sendall(b"question\n")
        assert answers.readline() == b"halfwhole\n"


def requests(reading: Reading, cgroup: TestCgroup) -> int:
    table = reading.tables[CGROUP]
    rows = table.ids == cgroup.cgroup_id
    return int(table.columns["turnaround.requests"][rows].sum())


def test_requests_are_counted_exactly_on_the_servers_side(kernel: Kernel, service: TestCgroup) -> None:
    port = start(service)
    probe = Turnaround.open(kernel, ProbeLimits())
    try:
        with connect(port) as client:
            ask(client, 1009)
        reading = probe.read()
        by_port = reading.tables["turnaround.port"]
        rows = by_port.keys["port"] == port
        assert by_port.keys["cgroup"][rows].tolist() == [service.cgroup_id]
        assert by_port.columns["turnaround.requests"][rows].tolist() == [1009]
        assert by_port.columns["turnaround.hist"][rows].sum() == 1009
        assert requests(reading, service) == 1009
        assert by_port.keys["port"].tolist() == [port]  # the client's side serves nothing
        assert not any(reading.lost.values())
    finally:
        probe.close()


def test_a_connection_older_than_the_probe_is_followed(kernel: Kernel, service: TestCgroup) -> None:
    port = start(service)
    with connect(port) as client:
        ask(client, 3)
        probe = Turnaround.open(kernel, ProbeLimits())
        try:
            ask(client, 211)
            assert requests(probe.read(), service) == 211
        finally:
            probe.close()


def test_the_time_is_the_services_own(kernel: Kernel, service: TestCgroup) -> None:
    port = start(service, delay=0.02)
    probe = Turnaround.open(kernel, ProbeLimits())
    try:
        asked_ns = 0
        with connect(port) as client:
            for _ in range(13):
                began_ns = time.monotonic_ns()
                ask(client, 1)
                asked_ns += time.monotonic_ns() - began_ns
                time.sleep(0.02)  # between an answer and the next request no time counts
        columns = probe.read().tables["turnaround.port"].columns
        assert 13 * 20_000_000 <= columns["turnaround.sum_ns"][0] < asked_ns
        assert columns["turnaround.hist"][0, :15].sum() == 0
    finally:
        probe.close()


def test_pieces_that_come_before_the_first_answer_count_one(kernel: Kernel, service: TestCgroup) -> None:
    port = start(service)
    probe = Turnaround.open(kernel, ProbeLimits())
    try:
        with connect(port) as client:
            for _ in range(7):
                for piece in (b"a", b"b", b"c\n"):
                    client.sendall(piece)
                assert client.makefile("rb").readline() == b"halfwhole\n"
        assert requests(probe.read(), service) == 7
    finally:
        probe.close()


def test_a_gone_cgroup_leaves_no_key(kernel: Kernel, service: TestCgroup) -> None:
    port = start(service)
    probe = Turnaround.open(kernel, ProbeLimits())
    try:
        with connect(port) as client:
            ask(client, 2)
        gone = probe.read().tables[CGROUP].ids
        probe.forget(gone)
        assert len(probe.read().tables["turnaround.port"]) == 0
    finally:
        probe.close()


def test_more_ports_than_places_lose_no_request(kernel: Kernel, service: TestCgroup) -> None:
    service.add(os.getpid())
    probe = Turnaround.open(kernel, ProbeLimits(max_cgroups=8))
    try:
        for _ in range(23):
            with socket.create_server(("127.0.0.1", 0)) as listener, connect(listener.getsockname()[1]) as client:
                server, _address = listener.accept()
                with server:
                    client.send(b"question")
                    assert server.recv(16)
                    server.send(b"answer")
            reading = probe.read()
        assert requests(reading, service) == 23
        assert len(reading.tables["turnaround.port"]) <= 8
        assert not any(reading.lost.values())
    finally:
        probe.close()
