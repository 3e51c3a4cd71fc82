"""Victims: services with clients."""

import socket

from bench.detect import loads
from bench.detect.stage import Stage

PACED = loads.sysbench(rate=300, primes=20_000)
"""A service that answers 300 requests a second and would be idle for most of the time if left alone."""


def start_redis(stage: Stage, *, clients: int, role: str = "victim") -> int:
    """redis near, its clients far; returns the port."""
    port = free_port()
    stage.start(role, loads.redis_server(port, stage.folder()), stage.near)
    stage.until(lambda: is_listening(port))
    stage.start("clients", loads.redis_clients(port, clients), stage.far)
    return port


def start_nginx(stage: Stage, *, connections: int, role: str = "victim") -> int:
    """nginx near, wrk far; returns the port."""
    port = free_port()
    stage.start(role, loads.nginx(port, stage.folder()), stage.near)
    stage.until(lambda: is_listening(port))
    stage.start("clients", loads.wrk(port, connections), stage.far)
    return port


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Return whether a port has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
