"""Stressors of the self-test, a process each: `python -m koordlet.self_test.stressor KIND CPU ARGUMENTS...`.

Each stays on a CPU, does its work, and prints what the kernel says it did as one JSON object, or the `error` that
prevented it. Imports the standard library alone, to start soon.
"""

import json
import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 4096
LINE_BYTES = 64


def spin(seconds: str) -> dict[str, int]:
    """Compute for so long."""
    before, end = _wait_ns(), time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < end:
        for _ in range(1000):
            number += 1
    waited = _wait_ns()
    return {"wait_ns": waited - before, "wait_since_start_ns": waited, "cpu_ns": time.process_time_ns()}


def fill_cache(path: str, mebibytes: str) -> dict[str, int]:
    """Write a file and read it, so that its pages pass through memory."""
    chunk = bytes(1 << 20)
    with Path(path).open("wb", buffering=0) as stream:
        stream.writelines(chunk for _ in range(int(mebibytes)))
        os.fsync(stream.fileno())
    with Path(path).open("rb", buffering=0) as stream:
        while stream.read(1 << 20):
            pass
    return {"bytes": int(mebibytes) << 20}


def read_disk(path: str, count: str) -> dict[str, int]:
    """Read blocks of a file around the page cache."""
    size = Path(path).stat().st_size
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    before = _read_bytes()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        for number in range(int(count)):
            os.preadv(
                descriptor, [buffer], number * BLOCK_BYTES * 7 % (size - BLOCK_BYTES) // BLOCK_BYTES * BLOCK_BYTES
            )
    finally:
        os.close(descriptor)
    return {"bytes": _read_bytes() - before}


def send(count: str) -> dict[str, int]:
    """Send datagrams over loopback to a socket of its own, and take them."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    before = _received_interrupts()
    for _ in range(int(count)):
        sender.send(b"x")
        receiver.recv(1)
    return {"packets": int(count), "interrupts": _received_interrupts() - before}


def answer(count: str, milliseconds: str) -> dict[str, int]:
    """Answer requests over loopback, each after so long."""
    pause = float(milliseconds) / 1000
    listener = socket.create_server(("127.0.0.1", 0))
    took: list[int] = []

    def ask() -> None:
        with socket.create_connection(listener.getsockname()) as client:
            for _ in range(int(count)):
                began = time.monotonic_ns()
                client.sendall(b"?")
                client.recv(1)
                took.append(time.monotonic_ns() - began)

    asker = threading.Thread(target=ask)
    asker.start()
    accepted, _ = listener.accept()
    with accepted:
        while accepted.recv(1):
            time.sleep(pause)
            accepted.sendall(b"!")
    asker.join()
    return {"requests": len(took), "took_ns": sum(took)}


def walk_memory(mebibytes: str, seconds: str) -> dict[str, int]:
    """Copy a buffer larger than caches, over and over."""
    source, target = bytearray(int(mebibytes) << 20), bytearray(int(mebibytes) << 20)
    copied, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        target[:] = source
        copied += len(source)
    return {"bytes": 2 * copied, "cpu_ns": time.process_time_ns()}


STRESSORS: dict[str, Callable[..., dict[str, int]]] = {
    "spin": spin,
    "fill-cache": fill_cache,
    "read-disk": read_disk,
    "send": send,
    "answer": answer,
    "walk-memory": walk_memory,
}


def _wait_ns() -> int:
    """Time that this thread was runnable and did not run, by the scheduler's count."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0


def _read_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def _received_interrupts() -> int:
    for line in Path("/proc/softirqs").read_text().splitlines():
        words = line.split()
        if words[0] == "NET_RX:":
            return sum(map(int, words[1:]))
    return 0


def main(arguments: list[str]) -> int:
    """Work, and print."""
    kind, cpu, *rest = arguments
    told: dict[str, int] | dict[str, str]
    try:
        os.sched_setaffinity(0, {int(cpu)})
        told = STRESSORS[kind](*rest)
    except OSError as error:
        told = {"error": str(error)}
    sys.stdout.write(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
