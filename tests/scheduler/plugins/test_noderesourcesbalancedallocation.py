"""Balance of resources, as the stock scheduler computes it."""

import numpy as np
import pytest

from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation, balance
from tests.schedobjects import engine, node, pod, totals


@pytest.mark.parametrize(
    ("taken", "offered", "expected"),
    [
        pytest.param([0, 0], [4000, 10000], 100, id="nothing-taken"),
        pytest.param([3000, 5000], [4000, 10000], 87, id="deviation-an-eighth"),
        pytest.param([3000, 5000], [6000, 10000], 100, id="equal-fractions"),
        pytest.param([9000, 5000], [4000, 10000], 75, id="over-capacity-counts-as-full"),
        pytest.param([3000, 5000], [4000, 0], 100, id="missing-resource-is-left-out"),
        pytest.param([1, 2, 3], [4, 4, 4], 79, id="three-by-standard-deviation"),
        pytest.param([1, 1], [0, 0], 100, id="nothing-offered"),
    ],
)
def test_balance(taken: list[int], offered: list[int], expected: int) -> None:
    assert balance(np.array([taken]), np.array([offered])).tolist() == [expected]


def test_requests_count_without_defaults() -> None:
    made = engine([node("a")], kinds={"balanced": NodeResourcesBalancedAllocation})
    assert totals(made, pod("p", {"cpu": "2"})) == {"a": 75}
