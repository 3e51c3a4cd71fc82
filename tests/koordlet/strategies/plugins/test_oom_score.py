import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.plugins.oom_score import OomScore, OomScoreSettings
from tests.koordlet.strategies.views import container, pod, settings, view

DEFAULTS = {"gates": {"OOMScoreAdj": False}, "settings": {"enable": False, "BE": 1000, "LS": None}}

POD, SPEC = "koordinator.sh/oom-score-adj", "koordinator.sh/oom-score-adj-spec"
ON = OomScoreSettings(enable=True)


@pytest.mark.parametrize(
    ("qos", "annotations", "main", "side"),
    [
        pytest.param("BE", {}, "1000", "1000", id="class"),
        pytest.param("LS", {}, None, None, id="the-kubelets"),
        pytest.param("LSR", {}, None, None, id="protected"),
        pytest.param("BE", {POD: "-500"}, "-500", "-500", id="pod"),
        pytest.param("LSR", {POD: "-998"}, "-998", "-998", id="protected-asks-for-itself"),
        pytest.param("BE", {SPEC: '{"main": 7}'}, "7", "1000", id="container"),
        pytest.param("LS", {POD: "5", SPEC: '{"main": 0}'}, "0", "5", id="container-before-pod"),
        pytest.param("BE", {POD: "1001"}, "1000", "1000", id="out-of-range"),
        pytest.param("BE", {SPEC: "[1]"}, "1000", "1000", id="unreadable"),
    ],
)
def test_scores(qos: str, annotations: dict[str, str], main: str | None, side: str | None) -> None:
    one = pod("a", QoSClass(qos), annotations=annotations)
    strategy = OomScore(ON, {"OOMScoreAdj": True})
    wanted = settings(strategy.decide(view(one, container(one), container(one, "side")), 0.0))
    assert wanted.get((f"{one.path}/main", Knob.OOM_SCORE_ADJ)) == main
    assert wanted.get((f"{one.path}/side", Knob.OOM_SCORE_ADJ)) == side
    unusable = annotations in ({POD: "1001"}, {SPEC: "[1]"})
    assert ("whole numbers" in strategy.problems.get(one.path, "")) is unusable


def test_gate_and_switch() -> None:
    one = pod("a", QoSClass.BE, annotations={POD: "5"})
    seen = view(one, container(one))
    assert OomScore().decide(seen, 0.0) == []
    assert set(settings(OomScore(ON).decide(seen, 0.0)).values()) == {"1000"}
    assert set(settings(OomScore(features={"OOMScoreAdj": True}).decide(seen, 0.0)).values()) == {"5"}
