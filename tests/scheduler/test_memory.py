"""Memory of the process: what one thread frees, the others can use."""

import os

import msgspec

from cluster import NODES, PODS
from cluster.twin import Twin
from tests.arenas import arenas_of
from tests.schedobjects import node, pod
from tests.scheduler.test_crash import scheduler, wait_for_bound


def test_threads_share_the_memory_that_they_free() -> None:
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node("n0", allocatable={"cpu": "64"}))])
        twin.load(PODS, [msgspec.to_builtins(pod(f"p{number}", {"cpu": "1"}, uid="")) for number in range(40)])
        with scheduler(twin.url) as process:
            wait_for_bound(twin, 40)
            assert len(os.listdir(f"/proc/{process.pid}/task")) > 10
            assert arenas_of(process.pid) <= 1
