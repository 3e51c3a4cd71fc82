"""Two network namespaces with a slow wire between them: the loads' own network, which leaves the host's alone."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HERE, THERE = "192.0.2.1", "192.0.2.2"
"""Addresses of the two ends (TEST-NET-1)."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """`near` holds the senders, `far` the servers; each has one device, `wire`."""

    near: str
    far: str

    @classmethod
    @contextmanager
    def made(cls) -> "Iterator[Namespaces]":
        """Make them, connected and unshaped."""
        pair = cls(f"koord-detect-{os.getpid()}-near", f"koord-detect-{os.getpid()}-far")
        try:
            for namespace in (pair.near, pair.far):
                _ip("netns", "add", namespace)
            _ip("-n", pair.near, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", pair.far)
            for namespace, address in ((pair.near, HERE), (pair.far, THERE)):
                _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "wire")
                _ip("-n", namespace, "link", "set", "lo", "up")
                _ip("-n", namespace, "link", "set", "wire", "up")
            yield pair
        finally:
            for namespace in (pair.near, pair.far):
                _ip("netns", "del", namespace, check=False)

    def shape(self, rate: str, limit: str) -> None:
        """Let the near end send at `rate` from a queue of at most `limit` bytes, first in, first out."""
        tbf = f"root tbf rate {rate} burst 16kb limit {limit}".split()
        subprocess.run(["tc", "-n", self.near, "qdisc", "add", "dev", "wire", *tbf], check=True)

    def queued_bytes(self) -> float:
        """Backlog of the queue now."""
        told = subprocess.run(
            ["tc", "-n", self.near, "-s", "-j", "qdisc", "show", "dev", "wire"],
            check=True,
            capture_output=True,
            text=True,
        )
        return float(json.loads(told.stdout)[0].get("backlog", 0))

    def receive_on(self, cpu: str) -> None:
        """Let packets that reach the far end be handled by one CPU, whatever their sender."""
        mask = f"{1 << int(cpu):x}"
        path = "/sys/class/net/wire/queues/rx-0/rps_cpus"
        subprocess.run(["ip", "netns", "exec", self.far, "sh", "-c", f"echo {mask} > {path}"], check=True)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)
