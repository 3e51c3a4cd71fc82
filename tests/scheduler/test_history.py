"""The linear history of writes under injected faults and restarts: no two bindings ever take one resource.

Every plugin of the default profile runs. The history is the API server's own; the sums are taken write by write.
"""

import random
import time
from contextlib import AbstractContextManager

import pytest

from cluster import PODS, DeleteOptions
from cluster.resources import NODES
from cluster.twin import Twin
from cluster.twin.faults import Fault, FaultType
from scheduler.engine import Engine
from scheduler.loop import Loop
from scheduler.plugins.deviceshare import DEVICES
from scheduler.profile import SchedulerSettings
from tests.schedhistory import GANG_SIZE, NODE_COUNT, check, device, gangs, gpu_node, random_pods, settle_whole
from tests.schedobjects import running_loop


def running(twin: Twin) -> AbstractContextManager[Loop]:
    return running_loop(twin, Engine(SchedulerSettings(backoff_initial_seconds=0.05, backoff_max_seconds=0.2)))


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
            settle_whole(twin)
        placed = check(twin)
    assert any(name.startswith("gpu") for name in placed)
    assert all(members in (0, GANG_SIZE) for members in gangs(placed).values())
