"""The columns predict what the sum over pairs of neighbours predicts, after any history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.interference import RESOURCES
from scheduler.interference.pressure_matrix import PressureMatrix, probe_of
from scheduler.interference.profile import MICRO, Traits


def traits(cpu: tuple[float, float], cache: tuple[float, float] = (0.0, 0.0)) -> Traits:
    """(sensitivity, aggressiveness) to cpu and cache."""
    made = Traits(np.zeros(len(RESOURCES), dtype=np.int64), np.zeros(len(RESOURCES), dtype=np.int64))
    for name, (sensitivity, aggressiveness) in (("cpu", cpu), ("cache", cache)):
        made.sensitivity[RESOURCES.index(name)] = round(sensitivity * MICRO)
        made.aggressiveness[RESOURCES.index(name)] = round(aggressiveness * MICRO)
    return made


WEB = traits((0.4, 0.1), (0.2, 0.0))
HOG = traits((0.0, 0.5), (0.0, 0.3))


def test_a_sensitive_pod_beside_a_hog() -> None:
    field = PressureMatrix(2)
    field.add(0, HOG)
    cost = field.cost(WEB, 0)
    assert cost.suffered == pytest.approx({"cpu": 0.2, "cache": 0.06})
    assert cost.imposed == {}
    assert field.lost(probe_of(WEB), slice(0, 2)).tolist() == [260_000, 0]
    assert field.pressure(0) == {"cpu": 0.5, "cache": 0.3}


def test_a_hog_beside_sensitive_pods() -> None:
    field = PressureMatrix(1)
    field.add(0, WEB)
    field.add(0, WEB)
    cost = field.cost(HOG, 0)
    assert cost.suffered == {}
    assert cost.imposed == pytest.approx({"cpu": 0.4, "cache": 0.12})
    assert cost.total == pytest.approx(0.52)
    assert field.resident_loss(slice(0, 1)).tolist() == pytest.approx([2 * 0.4 * 0.1])


def test_traits_by_node_type() -> None:
    field = PressureMatrix(3)
    for row in range(3):
        field.add(row, HOG)
    probes = np.array([probe_of(WEB), probe_of(traits((0.1, 0.0)))])
    types = np.array([0, 1, 0], dtype=np.int32)
    assert field.lost_by_type(probes, types, slice(0, 3)).tolist() == [260_000, 50_000, 260_000]


shares = st.floats(0, 1, allow_nan=False)
pods = st.builds(traits, st.tuples(shares, shares), st.tuples(shares, shares))


@given(residents=st.lists(pods, max_size=6), gone=st.lists(pods, max_size=3), newcomer=pods)
def test_columns_agree_with_the_sum_over_pairs(residents: list[Traits], gone: list[Traits], newcomer: Traits) -> None:
    field = PressureMatrix(1)
    for each in [*residents, *gone]:
        field.add(0, each)
    for each in gone:
        field.add(0, each, -1)
    scale = MICRO * MICRO
    suffered = sum(int(newcomer.sensitivity @ each.aggressiveness) for each in residents)
    imposed = sum(int(newcomer.aggressiveness @ each.sensitivity) for each in residents)
    assert field.lost(probe_of(newcomer), slice(0, 1)).tolist() == [(suffered + imposed) // MICRO]
    mutual = sum(
        int(one.sensitivity @ other.aggressiveness) for one in residents for other in residents if one is not other
    )
    distinct = len({id(each) for each in residents}) == len(residents)
    if distinct:
        assert field.resident_loss(slice(0, 1))[0] == pytest.approx(mutual / scale, abs=1e-9)
