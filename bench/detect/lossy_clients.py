"""Clients of an HTTP server that lose a part of the packets on their way in, as a long way does. End when killed.

    python bench/detect/lossy_clients.py PORT CONNECTIONS LOST_RATIO

Their sockets refuse packets at random by a filter, so that no kernel needs an emulator of networks.
"""

import ctypes
import socket
import struct
import sys
import threading
import time

SO_ATTACH_FILTER = 26
LOAD_RANDOM = (0x20, 0, 0, 0xFFFFF038)  # BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_RANDOM
JUMP_IF_ABOVE = 0x25  # BPF_JMP | BPF_JGT | BPF_K
RETURN = 0x06
SEGMENT_BYTES = 1400
PAUSE_SECONDS = 0.02


def lose(connection: socket.socket, ratio: float) -> None:
    """Refuse this part of the packets from now on."""
    steps = [LOAD_RANDOM, (JUMP_IF_ABOVE, 1, 0, int(ratio * 0xFFFFFFFF)), (RETURN, 0, 0, 0), (RETURN, 0, 0, 0xFFFF)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    given = struct.pack("HL", len(steps), ctypes.addressof(program))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, given)


def _fetch(port: int, ratio: float) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        connection.connect(("127.0.0.1", port))
        lose(connection, ratio)
        while True:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n")
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1 << 16)
            headers, _, body = head.partition(b"\r\n\r\n")
            length = int(headers.lower().partition(b"content-length:")[2].split()[0])
            rest = length - len(body)
            while rest > 0:
                rest -= len(connection.recv(1 << 16))
            time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Fetch over and over."""
    port, connections, ratio = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    clients = [threading.Thread(target=_fetch, args=(port, ratio)) for _ in range(connections)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


if __name__ == "__main__":
    main()
