"""A cluster with cores, GPUs and gangs, and a walk through the API server's history of writes."""

import json
import random
import time
from collections import defaultdict
from typing import Any

import msgspec

from cluster import PODS
from cluster.twin import Twin
from tests.schedobjects import node, pod
from tests.waiting import wait_for

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


def shares(document: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Percent of each GPU (node, minor) that a bound pod holds."""
    text = document["metadata"].get("annotations", {}).get(ALLOCATED)
    where = document["spec"]["nodeName"]
    return {
        (where, item["minor"]): int(item["resources"]["koordinator.sh/gpu-core"])
        for item in json.loads(text or "{}").get("gpu", [])
    }


def settle(twin: Twin) -> None:
    """Wait until nothing was written for 0.6 seconds, for 15 at most."""
    last, since = -1, time.monotonic()
    end = since + 15.0
    while time.monotonic() - since < 0.6 and time.monotonic() < end:
        if twin.revision != last:
            last, since = twin.revision, time.monotonic()
        time.sleep(0.02)


def settle_whole(twin: Twin) -> None:
    """Wait until nothing is written and no gang is bound in part; a loaded scheduler pauses between two bindings."""

    def whole() -> bool:
        settle(twin)
        return all(members == GANG_SIZE for members in gangs(places(twin)).values())

    wait_for(whole)


def check(twin: Twin) -> dict[str, str]:
    """Check capacity at every write of the history; return the node of each remaining pod."""
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


def places(twin: Twin) -> dict[str, str]:
    """Node of each bound pod as the API server holds it."""
    items = [(key.name, item["spec"].get("nodeName", "")) for key, item in list(twin.objects(PODS).items())]
    return {name: where for name, where in items if where}


def gangs(placed: dict[str, str]) -> dict[str, int]:
    """Placed members by gang."""
    members: dict[str, int] = defaultdict(int)
    for name in placed:
        if name.startswith("gang-"):
            members[name.rpartition("-")[0]] += 1
    return members
