"""OOM scores at the start."""

import pytest

from api.protocol import ANNOTATION_OOM_SCORE_ADJ, ANNOTATION_OOM_SCORE_ADJ_SPEC
from koordlet.hooks.decide import HookRules
from koordlet.hooks.rules.oom_score import OomScore
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from tests.koordlet.hooks.facts import node, pod, strategies

RULE = OomScore()
ON = strategies({"OOMScoreAdj": True}, oom_score={"enable": True})


@pytest.mark.parametrize(
    ("of", "score"),
    [
        pytest.param(pod("BE"), 1000, id="class"),
        pytest.param(pod("LS"), None, id="other-class"),
        pytest.param(pod("LS", annotations={ANNOTATION_OOM_SCORE_ADJ: "-200"}), -200, id="pod"),
        pytest.param(
            pod("LS", annotations={ANNOTATION_OOM_SCORE_ADJ: "1", ANNOTATION_OOM_SCORE_ADJ_SPEC: '{"main": 300}'}),
            300,
            id="container",
        ),
        pytest.param(pod("LSR", annotations={ANNOTATION_OOM_SCORE_ADJ: "-999"}), -999, id="protected-by-annotation"),
        pytest.param(pod("BE", PodContainer("pause", role=ContainerRole.SANDBOX)), None, id="sandbox"),
    ],
)
def test_scores(of: PodFacts, score: int | None) -> None:
    assert RULE.container(of, of.containers[0], node(strategies=ON)).oom_score_adj == score


@pytest.mark.parametrize("text", ["1001", "-1001", "many", "1.5", ""])
def test_a_score_out_of_range_is_reported(text: str) -> None:
    of = pod("LS", annotations={ANNOTATION_OOM_SCORE_ADJ: text})
    decided = HookRules().container(of, of.containers[0], node(strategies=ON))
    assert decided.resources.oom_score_adj is None
    assert ANNOTATION_OOM_SCORE_ADJ in decided.problems["default/web/main/oom_score"]
