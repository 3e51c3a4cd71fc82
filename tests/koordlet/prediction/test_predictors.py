"""Reclaimable amounts and peaks of production, by table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.resources import CPU, MEMORY
from api.qos import PriorityBand
from koordlet.prediction.models import SYSTEM, Peak, node_item
from koordlet.prediction.predictors import PredictedPod, by_pod, by_priority, predict

GIB = 1 << 30
DAY = 86_400.0
AMPLE = {CPU: 100_000, MEMORY: 400 * GIB}
P95_P98 = Peak(500, GIB)


def pod(
    uid: str = "a",
    cpu: int = 2000,
    memory: int = 2 * GIB,
    *,
    band: PriorityBand = PriorityBand.PROD,
    age: float = 2 * DAY,
    active: bool = True,
) -> PredictedPod:
    return PredictedPod(uid, band, {CPU: cpu, MEMORY: memory}, age, active)


@pytest.mark.parametrize(
    ("given", "reclaimable", "peak"),
    [
        pytest.param(pod(), (1450, 2 * GIB - int(1.1 * GIB)), (550, int(1.1 * GIB)), id="usual"),
        pytest.param(pod(cpu=100, memory=0), (0, 0), (550, int(1.1 * GIB)), id="uses more than it requests"),
        pytest.param(pod(age=DAY), (0, 0), (2000, 2 * GIB), id="cold start"),
        pytest.param(pod(uid="new"), (0, 0), (2000, 2 * GIB), id="no model"),
        pytest.param(pod(active=False), (0, 0), (0, 0), id="ending"),
        pytest.param(pod(band=PriorityBand.BATCH), (0, 0), (0, 0), id="batch"),
        pytest.param(
            pod(band=PriorityBand.NONE), (1450, 2 * GIB - int(1.1 * GIB)), (550, int(1.1 * GIB)), id="no class"
        ),
    ],
)
def test_pod_by_pod(given: PredictedPod, reclaimable: tuple[int, int], peak: tuple[int, int]) -> None:
    found = by_pod([given], {"a": P95_P98}, AMPLE, margin_percent=10, cold_start_seconds=DAY)
    assert found.reclaimable == dict(zip((CPU, MEMORY), reclaimable, strict=True))
    assert found.peak == dict(zip((CPU, MEMORY), peak, strict=True))


def test_not_more_is_reclaimable_than_the_node_has_left() -> None:
    small = {CPU: 1000, MEMORY: GIB}
    found = by_pod([pod()], {"a": P95_P98}, small, margin_percent=10, cold_start_seconds=DAY)
    assert found.reclaimable == {CPU: 450, MEMORY: 0}


PEAKS = {node_item(SYSTEM): Peak(1000, GIB), node_item("koord-prod"): Peak(3000, 4 * GIB), node_item(""): Peak(0, 0)}


def test_class_by_class() -> None:
    pods = [pod("a", 4000, 4 * GIB), pod("b", 4000, 4 * GIB), pod("c", 9000, band=PriorityBand.BATCH)]
    found = by_priority(pods, PEAKS, AMPLE, margin_percent=10)
    assert found is not None
    assert found.reclaimable == {CPU: 8000 - 4400, MEMORY: 8 * GIB - int(5.5 * GIB)}
    assert found.peak == {CPU: 4400, MEMORY: int(5.5 * GIB)}


def test_nothing_is_predicted_without_a_model_of_the_system() -> None:
    assert predict([pod()], {"a": P95_P98}, AMPLE, margin_percent=10, cold_start_seconds=DAY) is None


amounts = st.integers(0, 1 << 40)
pods_of = st.lists(
    st.builds(
        PredictedPod,
        uid=st.sampled_from("abcdef"),
        band=st.sampled_from(PriorityBand),
        requests=st.fixed_dictionaries({CPU: amounts, MEMORY: amounts}),
        age_seconds=st.floats(0, 1e6),
        active=st.booleans(),
    ),
    max_size=6,
)


@given(pods_of, st.dictionaries(st.sampled_from("abcdef"), st.builds(Peak, amounts, amounts)), st.integers(0, 100))
def test_the_careful_answer_counts(pods: list[PredictedPod], peaks: dict[str, Peak], margin: int) -> None:
    every = peaks | PEAKS
    both = predict(pods, every, AMPLE, margin_percent=margin, cold_start_seconds=DAY)
    one = by_pod(pods, every, AMPLE, margin_percent=margin, cold_start_seconds=DAY)
    other = by_priority(pods, every, AMPLE, margin_percent=margin)
    assert both is not None
    assert other is not None
    for name in (CPU, MEMORY):
        assert 0 <= both.reclaimable[name] <= min(AMPLE[name], one.reclaimable[name], other.reclaimable[name])
        assert both.peak[name] >= max(one.peak[name], other.peak[name])
