"""One strategy per resource, in the protocol's integers."""

from typing import Any

import pytest

from scheduler.plugins.noderesourcesfitplus import NodeResourcesFitPlus
from tests.schedobjects import engine, node, pod, totals

KINDS = {"noderesourcesfitplus": NodeResourcesFitPlus}
GPU = "nvidia.com/gpu"
RESOURCES = {"cpu": {"type": "LeastAllocated", "weight": 1}, GPU: {"type": "MostAllocated", "weight": 2}}


@pytest.mark.parametrize(
    ("requests", "resources", "expected"),
    [
        pytest.param({"cpu": "1", GPU: 1}, RESOURCES, (50 + 2 * 37) // 3, id="spread cpu, pack GPUs"),
        pytest.param({"cpu": "1"}, RESOURCES, 50, id="only what the pod asks for"),
        pytest.param({GPU: 1}, {GPU: RESOURCES[GPU]}, 37, id="one resource"),
        pytest.param({"cpu": "1"}, {GPU: RESOURCES[GPU]}, 100, id="nothing configured is asked for"),
        pytest.param({"cpu": "7"}, {"cpu": RESOURCES["cpu"]}, 0, id="over capacity, spreading"),
        pytest.param({GPU: 9}, {GPU: RESOURCES[GPU]}, 100, id="over capacity, packing"),
        pytest.param({GPU: 1}, {"cpu": RESOURCES["cpu"]}, 59, id="100 millicores for who states none"),
    ],
)
def test_score(requests: dict[str, Any], resources: dict[str, Any], expected: int) -> None:
    table = {"enabled": True, "resources": resources}
    made = engine(
        [node("a", allocatable={"cpu": "10", GPU: "8"})],
        [pod("old", {"cpu": "4", GPU: 2}, nodeName="a")],
        kinds=KINDS,
        plugins={"noderesourcesfitplus": table},
    )
    assert totals(made, pod("p", requests)) == {"a": expected}
