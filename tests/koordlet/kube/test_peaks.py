"""Peaks under churn: what is known of pods that are gone does not add up."""

from api.qos import QoSClass
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube.node_metric import UsageHistory
from koordlet.kube.peaks import PeakPrediction
from koordlet.kube.usage_meter import TickUsage
from koordlet.prediction.settings import PredictionSettings

NOW = 1_700_000_000.0
SAMPLE = (1.0, 1e9, 1e9)
PODS = 10


def table(minute: int) -> PodTable:
    pods = [PodFacts(f"ci/run-{number}", QoSClass.BE, uid=f"uid-{number}") for number in range(minute, minute + PODS)]
    return PodTable(tuple(pods), generation=minute + 1)


def step(prediction: PeakPrediction, history: UsageHistory, pods: PodTable, minute: int) -> None:
    usage = TickUsage(SAMPLE, SAMPLE, {pod.uid: SAMPLE for pod in pods.pods})
    history.add(usage, 60.0 * minute)
    prediction.step(history, pods, 60.0 * minute, NOW + 60.0 * minute)


def test_pods_that_come_and_go_leave_no_models() -> None:
    prediction, history = PeakPrediction(PredictionSettings(directory=""), NOW), UsageHistory(1.0)
    sizes = []
    for minute in range(120):
        step(prediction, history, table(minute), minute)
        sizes.append(len(prediction.models))
    assert all(pod.uid in prediction.models for pod in table(119).pods)
    assert "uid-100" not in prediction.models
    assert max(sizes) == max(sizes[:15]), "a pod a minute ends, and is known for five minutes more"


def test_pods_are_known_on_while_no_source_lists_any() -> None:
    prediction, history = PeakPrediction(PredictionSettings(directory=""), NOW), UsageHistory(1.0)
    for minute in range(4):
        step(prediction, history, table(0), minute)
    for minute in range(4, 20):
        step(prediction, history, PodTable((), generation=50), minute)
    assert all(pod.uid in prediction.models for pod in table(0).pods)
