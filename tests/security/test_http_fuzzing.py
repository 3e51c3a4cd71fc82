"""Every HTTP server of ours beside clients that speak no HTTP: torn, slow, huge and nonsensical requests.

KOORD_FUZZ_CONNECTIONS sets the connections for each server (60 by default).
"""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile_http import Door, hostile_requests, survived
from tests.security.doors import DOORS, Open
from tests.waiting import wait_for

CONNECTIONS = int(os.environ.get("KOORD_FUZZ_CONNECTIONS", "60"))
SILENT = 8
"""Clients that connect and say half of something, while others are answered."""

HALVES = (b"", b"G", b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\nx", b"\x16\x03\x01\x40")


@pytest.fixture(scope="module", params=sorted(DOORS))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    with DOORS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made


def honest(opened: Open) -> None:
    assert {ask.target: opened.door.ask(ask) for ask in opened.asks} == {ask.target: 200 for ask in opened.asks}


@pytest.mark.usefixtures("quiet")
def test_no_request_breaks_a_server_or_keeps_a_thread(opened: Open) -> None:
    honest(opened)

    @settings(max_examples=CONNECTIONS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        survived(opened.door, data.draw(hostile_requests(opened.asks)))

    fuzz()
    honest(opened)
    wait_for(lambda: opened.num_connections() == 0)
    wait_for(lambda: opened.num_threads() == 0)


@pytest.mark.usefixtures("quiet")
def test_clients_that_do_not_go_on_keep_nobody_from_an_answer(opened: Open) -> None:
    held = [socket.create_connection(("127.0.0.1", opened.door.port), 10) for _ in range(SILENT)]
    try:
        for number, connection in enumerate(held):
            connection.sendall(HALVES[number % len(HALVES)])
        honest(opened)
        # The count that has to be none above is one of threads that are there. Some of these have been refused.
        wait_for(lambda: opened.num_threads() == opened.num_connections() > 0)
    finally:
        for connection in held:
            connection.close()
    wait_for(lambda: opened.num_connections() == 0)


@pytest.mark.usefixtures("quiet")
def test_a_length_that_is_not_sent_costs_no_memory(opened: Open) -> None:
    """A server that made room for what is announced would be killed by one line."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    before = resident_bytes()
    for length in (1 << 30, 1 << 40, 1 << 62):
        survived(opened.door, [head % length, b"x"])
    assert resident_bytes() - before < 64 << 20
    honest(opened)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_plain_client_is_answered_where_there_is_no_tls_alone(opened: Open) -> None:
    answer = Door(opened.door.port).tell([opened.asks[0].encoded()])
    assert (b"HTTP/" in answer) is (opened.door.context is None)
