"""Killed at any moment and started again: no pod is bound twice, and no node ever holds more than it has."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from cluster import NODES, PODS
from cluster.twin import Twin
from scheduler.plugins.deviceshare import DEVICES
from tests.schedhistory import GANG_SIZE, NODE_COUNT, check, device, gangs, gpu_node, places, random_pods, settle
from tests.schedobjects import node, pod
from tests.waiting import wait_for

PODS_PER_KILL = 40


@contextmanager
def scheduler(url: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "scheduler", "--server", url, "run", "--no-leader-elect", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def bound(twin: Twin) -> int:
    return sum(1 for item in twin.objects(PODS).values() if item["spec"].get("nodeName"))


def wait_for_bound(twin: Twin, count: int) -> None:
    wait_for(lambda: bound(twin) >= count, interval_seconds=0.002)


@pytest.mark.parametrize("seed", [0])
def test_kill_and_restart(seed: int) -> None:
    draw = random.Random(seed)
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node(f"n{index}", allocatable={"cpu": "32"})) for index in range(4)])
        total = 0
        for round_number in range(3):
            names = [f"p{round_number}-{index}" for index in range(PODS_PER_KILL)]
            twin.load(PODS, [msgspec.to_builtins(pod(name, {"cpu": "1"}, uid="")) for name in names])
            killed_at = total + draw.randrange(1, PODS_PER_KILL)
            with scheduler(twin.url) as process:
                wait_for_bound(twin, killed_at)
                os.kill(process.pid, signal.SIGKILL)
            total += PODS_PER_KILL
        with scheduler(twin.url):
            wait_for_bound(twin, total)
        where: dict[str, str] = {}
        held: Counter[str] = Counter()
        for event in twin.history(PODS):
            name, chosen = event.record.key.name, event.record.document["spec"].get("nodeName", "")
            if chosen and name not in where:
                where[name] = chosen
                held[chosen] += 1
                assert held[chosen] <= 32
            assert not chosen or where[name] == chosen
        assert len(where) == total


def test_devices_and_gangs_survive_kills() -> None:
    """There is room for all, so that both gangs are whole in the end."""
    draw = random.Random(7)

    def complete(placed: dict[str, str]) -> bool:
        has_gpu = any(name.startswith("gpu") for name in placed)
        return has_gpu and gangs(placed) == {f"gang-{batch}": GANG_SIZE for batch in range(2)}

    with Twin() as twin:
        twin.serve(DEVICES)
        twin.load(NODES, [gpu_node(f"n{index}") for index in range(NODE_COUNT)])
        twin.load(DEVICES, [device(f"n{index}") for index in range(NODE_COUNT)])
        for batch in range(2):
            before = bound(twin)
            twin.load(PODS, random_pods(draw, batch))
            with scheduler(twin.url) as process:
                wait_for_bound(twin, before + draw.randrange(1, 4))
                os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: twin.open_watches == 0)  # those of the killed one
        with scheduler(twin.url):
            wait_for(lambda: complete(places(twin)))
            settle(twin)
        placed = check(twin)
    assert complete(placed), placed
