"""Programs that load the kernel in tests."""

FLOOD = """
import socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
end = time.monotonic() + float(sys.argv[1])
sent = 0
while time.monotonic() < end or sent < 2000:
    for _ in range(200):
        sender.send(b"x")
    sent += 200
"""
"""Datagrams over loopback that no socket reads, for the seconds of its argument, and at least 2,000.

The receive interrupt runs inside the sender.
"""
