"""Frames of the multiplexing."""

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.nri.mux import MOST_BYTES, MOST_SENT_BYTES, Mux, MuxError


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(10)
    yield ends
    for end in ends:
        end.close()


def test_layout(pair: tuple[socket.socket, socket.socket]) -> None:
    Mux(pair[0]).send(2, b"abc")
    assert pair[1].recv(100) == bytes((0, 0, 0, 2, 0, 0, 0, 3)) + b"abc"


def test_no_frame_is_larger_than_the_readers_buffer(pair: tuple[socket.socket, socket.socket]) -> None:
    data = bytes(range(256)) * 40
    Mux(pair[0]).send(1, data)
    parts, reader = [], Mux(pair[1])
    while sum(map(len, parts)) < len(data):
        stream, part = reader.receive()
        assert stream == 1
        assert len(part) <= MOST_SENT_BYTES
        parts.append(part)
    assert b"".join(parts) == data


def test_a_frame_that_is_too_large_ends_the_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(struct.pack(">II", 1, MOST_BYTES + 1))
    with pytest.raises(MuxError, match="at most"):
        Mux(pair[1]).receive()


def test_a_torn_frame_ends_the_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(struct.pack(">II", 1, 10) + b"abc")
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(MuxError, match="closed"):
        Mux(pair[1]).receive()


@given(messages=st.lists(st.binary(max_size=9000), max_size=4), cut=st.integers(1, 5000))
def test_ttrpc_messages_survive_any_cut(messages: list[bytes], cut: int) -> None:
    from koordlet.nri.ttrpc import Reassembly, encode

    data = b"".join(encode(2 * at + 1, 1, message) for at, message in enumerate(messages))
    reassembly = Reassembly()
    found = [
        (message.stream, message.data)
        for start in range(0, len(data), cut)
        for message in reassembly.add(data[start : start + cut])
    ]
    assert found == [(2 * at + 1, message) for at, message in enumerate(messages)]
