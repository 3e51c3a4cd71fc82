"""The linear history of writes under injected faults and restarts: no two bindings ever take one resource.

Every plugin of the default profile runs. The history is the API server's own; the sums are taken write by write.
"""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from cluster import PODS, DeleteOptions
from cluster.resources import NODES
from cluster.twin import Twin
from cluster.twin.faults import Fault, FaultType
from scheduler.engine import Engine
from scheduler.loop import Loop
from scheduler.plugins.deviceshare import DEVICES
from scheduler.profile import Settings
from tests.schedobjects import node, pod

GANG = "gang.scheduling.koordinator.sh/"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
CORES, GPUS, NODE_COUNT, GANG_SIZE = 16, 2, 3, 4


def gpu_node(name: str) -> dict[str, Any]:
    offered = {"cpu": str(CORES), "memory": "64Gi", "koordinator.sh/gpu": str(100 * GPUS)}
    made: dict[str, Any] = msgspec.to_builtins(node(name, allocatable=offered))
    return made


def device(name: str) -> dict[str, Any]:
    amounts = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory-ratio": "100",
        "koordinator.sh/gpu-memory": "16Gi",
    }
    devices = [{"type": "gpu", "minor": minor, "health": True, "resources": amounts} for minor in range(GPUS)]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def random_pods(draw: random.Random, batch: int) -> list[dict[str, Any]]:
    """Plain pods, GPU shares, and a strict gang."""
    made: list[Any] = [pod(f"plain-{batch}-{index}", {"cpu": str(draw.randrange(1, 4))}) for index in range(4)]
    for index in range(4):
        share = draw.choice([25, 50, 60])
        made.append(pod(f"gpu-{batch}-{index}", {"cpu": "1", "koordinator.sh/gpu": share}))
    keys = {f"{GANG}name": f"gang-{batch}", f"{GANG}min-available": str(GANG_SIZE), f"{GANG}waiting-time": "5s"}
    size = draw.choice(["1", "3"])
    made += [pod(f"gang-{batch}-{index}", {"cpu": size}, annotations=keys) for index in range(GANG_SIZE)]
    documents = [msgspec.to_builtins(item) for item in made]
    for document in documents:
        document["metadata"].pop("uid")
    draw.shuffle(documents)
    return documents


@contextmanager
def running(twin: Twin) -> Iterator[Loop]:
    loop = Loop(twin.client(), Engine(Settings(backoff_initial_seconds=0.05, backoff_max_seconds=0.2)))
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        assert loop.ready.wait(10)
        yield loop
    finally:
        loop.stop()
        thread.join(20)
        assert not thread.is_alive()


def shares(document: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Percent of each GPU (node, minor) that a bound pod holds."""
    text = document["metadata"].get("annotations", {}).get(ALLOCATED)
    where = document["spec"]["nodeName"]
    return {
        (where, item["minor"]): int(item["resources"]["koordinator.sh/gpu-core"])
        for item in json.loads(text or "{}").get("gpu", [])
    }


def settle(twin: Twin) -> None:
    """Wait until nothing was written for a while."""
    last, since = -1, time.monotonic()
    end = since + 15.0
    while time.monotonic() - since < 0.6 and time.monotonic() < end:
        if twin.revision != last:
            last, since = twin.revision, time.monotonic()
        time.sleep(0.02)


def check(twin: Twin) -> dict[str, str]:
    """Walk through every write; returns where each remaining pod is."""
    cores: dict[str, int] = defaultdict(int)
    cards: dict[tuple[str, int], int] = defaultdict(int)
    held: dict[str, dict[str, Any]] = {}
    for event in twin.history(PODS):
        document = event.record.document
        uid, where = document["metadata"]["uid"], document["spec"].get("nodeName", "")
        gone = event.type == "DELETED"
        if where and uid not in held and not gone:
            held[uid] = document
            sign = 1
        elif gone and uid in held:
            document, sign = held.pop(uid), -1
        else:
            assert not where or uid not in held or held[uid]["spec"]["nodeName"] == where, "bound twice"
            continue
        requests = document["spec"]["containers"][0]["resources"]["requests"]
        cores[where] += sign * int(requests["cpu"])
        assert cores[where] <= CORES
        if "koordinator.sh/gpu" in requests:
            assert shares(document), "a bound pod lacks its share"
        for card, percent in shares(document).items():
            cards[card] += sign * percent
            assert cards[card] <= 100
    return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in held.values()}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_two_bindings_take_one_resource(seed: int) -> None:
    draw = random.Random(seed)
    with Twin() as twin, twin.client() as client:
        twin.serve(DEVICES)
        twin.load(NODES, [gpu_node(f"n{index}") for index in range(NODE_COUNT)])
        twin.load(DEVICES, [device(f"n{index}") for index in range(NODE_COUNT)])
        for kind in (FaultType.DROP, FaultType.ERROR):
            twin.faults.add(
                Fault(kind, frozenset({"bind", "patch"}), probability=0.1, times=10, after=draw.random() < 0.5)
            )
        for batch in range(3):
            with running(twin):
                twin.load(PODS, random_pods(draw, batch))
                time.sleep(0.25)
                for key, item in list(twin.objects(PODS).items()):
                    if draw.random() < 0.3 and not key.name.startswith("gang"):
                        uid = item["metadata"]["uid"]
                        client.delete(PODS, key, DeleteOptions(uid=uid, grace_period_seconds=0))
                time.sleep(0.25)
        twin.faults.clear()
        with running(twin):
            settle(twin)
        placed = check(twin)
    assert any(name.startswith("gpu") for name in placed)
    for batch in range(3):
        members = [name for name in placed if name.startswith(f"gang-{batch}-")]
        assert len(members) in (0, GANG_SIZE), members
