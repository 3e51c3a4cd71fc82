"""Nodes with scarce resources are left to those who ask for them."""

from typing import Any

import pytest

from scheduler.plugins.scarceresourceavoidance import ScarceResourceAvoidance
from tests.schedobjects import engine, node, pod, totals

KINDS = {"scarceresourceavoidance": ScarceResourceAvoidance}
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("requests", "scarce", "expected"),
    [
        pytest.param({"cpu": "1", "memory": "1Gi"}, [GPU], {"gpu": 50, "plain": 100}, id="GPUs are avoided"),
        pytest.param({"cpu": "1", "memory": "1Gi", GPU: 1}, [GPU], {"gpu": 100, "plain": 100}, id="unless asked for"),
        pytest.param({"cpu": "1"}, [GPU], {"gpu": 66, "plain": 100}, id="memory is left as well"),
        pytest.param({"cpu": "1"}, [], {"gpu": 100, "plain": 100}, id="nothing is scarce"),
    ],
)
def test_score(requests: dict[str, Any], scarce: list[str], expected: dict[str, int]) -> None:
    disk = {"ephemeral-storage": "10Gi"}
    made = engine(
        [node("gpu", allocatable={GPU: "8", **disk}), node("plain", allocatable=disk)],
        kinds=KINDS,
        plugins={"scarceresourceavoidance": {"enabled": True, "resources": scarce}},
    )
    assert totals(made, pod("p", requests)) == expected
