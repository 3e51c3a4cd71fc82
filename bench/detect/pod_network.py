"""A node with routed pods, each in a network namespace behind a veth pair, and the world beyond the node's uplink."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.detect.namespaces import HERE, THERE

GATEWAY = "169.254.1.1"
"""The pods' gateway, an address that no interface has (as Calico gives it)."""


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """`node` has a device `uplink` to `world`, and a device `to-POD` to each pod."""

    node: str
    world: str
    pods: tuple[str, ...]

    @classmethod
    @contextmanager
    def made(cls, pods: Sequence[str]) -> "Iterator[PodNetwork]":
        """Make it for pods of these names, unshaped. Raises OSError or CalledProcessError where the host cannot."""
        names = [f"koord-detect-{os.getpid()}-{name}" for name in ("node", "world", *pods)]
        network = cls(names[0], names[1], tuple(pods))
        try:
            for name in names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            network._connect()
            yield network
        finally:
            for name in names:
                _ip("netns", "del", name, check=False)

    def _connect(self) -> None:
        _ip("-n", self.node, "link", "add", "uplink", "type", "veth", "peer", "name", "uplink", "netns", self.world)
        for name, address in ((self.node, HERE), (self.world, THERE)):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "uplink")
            _ip("-n", name, "link", "set", "uplink", "up")
        _ip("-n", self.world, "route", "add", "10.97.0.0/16", "via", HERE)
        _ip("-n", self.node, "route", "add", "default", "via", THERE)  # else no host answers for the gateway
        _sysctl(self.node, "ip_forward", "1")
        for pod in self.pods:
            inside, outside = self.namespace(pod), f"to-{pod}"
            _ip("-n", inside, "link", "add", "eth0", "type", "veth", "peer", "name", outside, "netns", self.node)
            _ip("-n", self.node, "link", "set", outside, "up")
            _sysctl(self.node, f"conf/{outside}/proxy_arp", "1")
            _ip("-n", self.node, "route", "add", f"{self.address(pod)}/32", "dev", outside, "scope", "link")
            _ip("-n", inside, "addr", "add", f"{self.address(pod)}/32", "dev", "eth0")
            _ip("-n", inside, "link", "set", "eth0", "up")
            _ip("-n", inside, "route", "add", GATEWAY, "dev", "eth0", "scope", "link")
            _ip("-n", inside, "route", "add", "default", "via", GATEWAY, "dev", "eth0")

    def namespace(self, pod: str) -> str:
        """Name of a pod's network namespace."""
        return f"koord-detect-{os.getpid()}-{pod}"

    def address(self, pod: str) -> str:
        """Address of a pod."""
        return f"10.97.1.{self.pods.index(pod) + 2}"

    def shape(self, rate: str, limit: str) -> None:
        """Let the node send at `rate` from a queue of at most `limit` bytes, first in, first out."""
        tbf = f"root tbf rate {rate} burst 16kb limit {limit}".split()
        subprocess.run(["tc", "-n", self.node, "qdisc", "add", "dev", "uplink", *tbf], check=True)

    def queued_bytes(self) -> float:
        """Backlog of the node's send queue now."""
        show = ["tc", "-n", self.node, "-s", "-j", "qdisc", "show", "dev", "uplink"]
        told = subprocess.run(show, check=True, capture_output=True, text=True)
        return float(json.loads(told.stdout)[0].get("backlog", 0))

    def receive_on(self, pod: str, cpu: str) -> None:
        """Let the node handle what a pod sends on one CPU."""
        path = f"/sys/class/net/to-{pod}/queues/rx-0/rps_cpus"
        script = f"mount -t sysfs none /sys && echo {1 << int(cpu):x} > {path}"
        enter = ["nsenter", f"--net=/run/netns/{self.node}", "unshare", "--mount", "sh", "-c", script]
        subprocess.run(enter, check=True)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def _sysctl(namespace: str, name: str, value: str) -> None:
    script = f"echo {value} > /proc/sys/net/ipv4/{name}"
    subprocess.run(["ip", "netns", "exec", namespace, "sh", "-c", script], check=True)
